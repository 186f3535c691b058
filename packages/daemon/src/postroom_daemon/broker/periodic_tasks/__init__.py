"""What has to be done without a request; ``housekeeping`` lists it."""
