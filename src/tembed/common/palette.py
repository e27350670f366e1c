"""The colours of every chart: baselines are grey, networks with the block have the accent colour."""

BASELINE = "#6b7280"
"""Grey: a network without the block, and BN-ReLU among the maximizers."""
BLOCK = "#c2410c"
"""The accent colour: a network with the block."""
AUX = "#1d4ed8"
"""Deep supervision alone."""
BASELINE_SHADES = ("#374151", "#9ca3af", "#111827", "#64748b", "#b6bcc6")
"""Greys for variants of baselines, such as other maximizers or the control -1x1."""
BLOCK_SHADES = ("#f59e0b", "#7c2d12", "#fb7185", "#9f1239", "#fdba74", "#431407")
"""Relatives of the accent colour for variants of networks with the block, such as other values of lambda."""
OTHERS = (AUX, "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#4d7c0f", "#4338ca")
"""Colours for everything else."""
