"""Is BN-ReLU a soft arg-max in trained networks? Measured in every unit (§3.2)."""
