"""A fleet of simulated devices, made by the product itself: real daemons in driven time, with faults that are known."""
