"""The text of a request of a claim."""

from ullage.model.device_claim import DeviceAlternative, DeviceRequest


def test_the_text_of_a_request_has_the_number_and_the_class_of_devices():
    one = DeviceAlternative("r", "gpu")
    two = DeviceAlternative("r/b", "large", ("device.capacity > 1", "x"), 2)
    assert str(DeviceRequest("r", (one,))) == "1 device of class gpu"
    every = DeviceAlternative("r/c", "nic", count=None)
    assert str(DeviceRequest("r", (two, every))) == (
        "2 devices of class large for which device.capacity > 1 and x, or all devices of class nic"
    )
