"""The demo in three acts: what misaligned memory costs, how an aligned pool cures it, and a model's weights crossing
between two Ray actors."""
