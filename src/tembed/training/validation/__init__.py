"""What is validated at the end of an epoch: averaged weights, recalibrated BN statistics, and the share of ``f'``."""
