"""Speed, measured: ratios side by side in one run, with the size of the work. `make bench` runs all."""
