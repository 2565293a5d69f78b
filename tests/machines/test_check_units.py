@mends("unit-restarts", "unit-down", "unit-not-enabled", "unit-pid-file")
