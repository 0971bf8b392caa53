"""Weights from one sharding to another, side by side with what is used today."""
