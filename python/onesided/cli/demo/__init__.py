"""The demo in three parts: the problem of misaligned memory, its solution by an aligned pool, and the transfer of a
model's weights between two Ray actors."""
