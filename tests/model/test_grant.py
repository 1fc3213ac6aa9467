"""What a holder has of a card."""

from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.grant import Grant
from ullage.model.quantity import PPM


def test_nobody_holds_more_than_a_card_also_of_one_that_became_smaller():
    charge = Charge(50_000, 20 << 30)
    assert Grant.of(Gpu("g", 0, compute_gflops=100_000, vram_bytes=80 << 30), charge).fraction_ppm == PPM // 2
    assert Grant.of(Gpu("g", 0, compute_gflops=200, vram_bytes=80 << 30), charge).fraction_ppm == PPM
