"""Lists the tests that ``make test-fast`` leaves out."""

from __future__ import annotations

MARKED: dict[str, tuple[str, ...]] = {
    "browser": ("service/test_serve_page.py",),
    "broker": (
        "service/test_mqtt.py",
        "service/test_serve_scoring.py",
        "service/test_serve_store.py",
        "service/test_serve_telling.py",
    ),
    "cluster": ("jobs/test_cluster.py",),
    "kills": ("jobs/test_jobs.py", "runtime/test_watch.py", "service/test_outlets.py", "service/test_serve_kills.py"),
    "docs": ("test_docs.py::test_every_example_of_a_page_prints_what_the_page_says", "test_examples.py"),
    "slow": (
        "benchmark/",
        "cli/test_cli.py",
        "core/test_arrays.py",
        "core/test_discrete_actions.py",
        "core/test_text.py::test_a_legend_shows_any_name",
        "core/test_threads.py::test_models_scores_and_words",
        "features/test_prepared.py",
        "irl/test_trainer.py",
        "irl/test_trpo.py",
        "irl/test_demonstrators.py",
        "model/",
        "readers/test_readers_table.py::test_reading_a_table_takes_little_more_memory",
        "readers/test_readers_table.py::test_memory_does_not_grow",
        "runtime/test_live.py::test_normal_trips_rarely_alert",
        "scoring/test_own_scale.py::test_simulated_people_are_flagged",
        "scoring/test_own_scale.py::test_unseen_normal_trips_are_flagged",
        "service/test_serve_",
        "simulate/",
        "golden/",
        "test_without_torch.py",
    ),
}
"""Maps markers to tests, by the beginning of their names; ``make test-fast`` leaves all of these out."""
