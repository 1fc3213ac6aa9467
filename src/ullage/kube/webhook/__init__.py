"""The admission webhook for pods that are created or changed."""
