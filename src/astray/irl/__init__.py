"""Sample-based maximum-entropy IRL with a bootstrapped reward: Algorithms 1 and 2 of the paper and their parts."""
