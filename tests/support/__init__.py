"""What the tests share: builders of networks and strategies for random ones."""
