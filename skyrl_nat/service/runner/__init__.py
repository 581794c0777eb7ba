"""What runs jobs: the background loop, Ray's head of this machine, and the first words of a job's own process."""
