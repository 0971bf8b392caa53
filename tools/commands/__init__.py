"""The commands of ./do. Standard library only: they run before anything is installed."""
