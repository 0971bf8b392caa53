"""The command `onesided`: doctor, demo, sim."""
