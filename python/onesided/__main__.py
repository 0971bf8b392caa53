"""`python -m onesided`: the command `onesided` where no script is installed."""

from onesided.cli.main import main

if __name__ == "__main__":
    main()
