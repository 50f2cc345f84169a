"""What several test files share."""

from __future__ import annotations

from typing import Any

# Of a detector of GPS trips: the shared reward goes on learning from a population, a little.
QUICK: dict[str, Any] = {
    "iterations": 2,
    "sharing": {
        "least_agents": 2,
        "memories": 2,
        "demonstrations": 10,
        "short_demonstrations": 6,
        "imagined": 5,
        "reference": 40,
    },
}
