"""Programs of executors in processes of their own. They run isolated: nothing here needs another package."""
