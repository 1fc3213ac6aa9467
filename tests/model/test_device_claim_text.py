"""What a claim asks, in words."""

from ullage.model.device_claim import DeviceAlternative, DeviceRequest


def test_a_request_of_a_claim_says_how_many_devices_of_which_class():
    one = DeviceAlternative("r", "gpu")
    two = DeviceAlternative("r/b", "large", ("device.capacity > 1", "x"), 2)
    assert str(DeviceRequest("r", (one,))) == "1 device of class gpu"
    every = DeviceAlternative("r/c", "nic", count=None)
    assert str(DeviceRequest("r", (two, every))) == (
        "2 devices of class large for which device.capacity > 1 and x, or all devices of class nic"
    )
