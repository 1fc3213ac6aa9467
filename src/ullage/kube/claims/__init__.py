"""ResourceClaims, allocated before a scheduler sees their pods."""
