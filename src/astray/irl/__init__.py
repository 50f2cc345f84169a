"""Sample-based IRL with a bootstrapped reward: Algorithms 1 and 2 of the paper and their parts.

``kdd19`` is maximum-entropy IRL, p(tau) ~ exp R(tau). The default is relative-entropy IRL (Boularias et al. 2011),
p ~ q exp R with the background as q, whose reward is estimated as a density ratio (:mod:`astray.irl.objective`).
"""
