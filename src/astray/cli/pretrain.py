"""``astray pretrain``: learns, from simulated people, the reward that every model of GPS trips begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from astray.cli import options as o
from astray.cli.console import leaving_at_once, progress, say
from astray.core.atomic import check_target
from astray.core.extras import require_extra
from astray.core.settings import Settings, SettingsError


@o.with_settings("iterations", "seed")
def command(
    settings: Settings,
    output: Annotated[Path, o.output("FILE", "The reward's file, for astray fit --reward, such as mine.safetensors.")],
    towns: Annotated[int | None, Option("--towns", min=1, help="How many towns to simulate.")] = None,
    people: Annotated[int | None, Option("--people", min=2, help="How many people live in each town.")] = None,
    days: Annotated[int | None, Option("--days", min=7, help="How many days to simulate.")] = None,
    keep: Annotated[
        Path | None,
        Option("--keep", metavar="FILE", help="Keep this reward; measure only what is normal by it, its reference."),
    ] = None,
) -> None:
    """Learn, from simulated people, the reward that every model begins with.

    The reward compares a trip with the past trips of its agent: how much of it leads through new places, how far it
    strays from habitual ways, at which hour. What these numbers mean is much the same for everybody, so the reward is
    learned once: from people of towns of many kinds who walk, cycle, drive and ride, with good and bad loggers. It
    learns to tell each person from the others of the town, and from what the person might have done instead.

    The result ships with astray. This command makes it again, or makes another one for astray fit --reward. Without
    options it makes the shipped reward, bit for bit on the same kind of machine, in some minutes.

    [b]Examples[/b]

      astray pretrain -o mine.safetensors
      astray fit past.csv -o me.astray --reward mine.safetensors
      [dim]# a small one, to try it out: a minute or two[/dim]
      astray pretrain -o small.safetensors --towns 2 --people 8 --days 28
      [dim]# the same reward, after a change of how trips are scored[/dim]
      astray pretrain -o mine.safetensors --keep mine.safetensors
    """
    check_target(output)
    if settings.iterations == 0:
        raise SettingsError("no reward is learned in 0 iterations", place="--iterations", remedy="give at least 1")
    from astray.model.pretrained import read_reward, write_reward
    from astray.model.pretraining import Recipe, pretrain

    kept = None if keep is None else read_reward(keep)
    if kept is None:
        require_extra("learn", "learning a reward", "torch")
    shipped = Recipe()
    recipe = Recipe(
        towns=towns or shipped.towns,
        cities=0 if towns else shipped.cities,
        people=people or shipped.people,
        days=days or shipped.days,
        iterations=settings.iterations or shipped.iterations,
        seed=settings.seed,
    )
    does = "learning from" if kept is None else "scoring"
    what = f"{does} {recipe.people} people in each of {recipe.towns + recipe.cities} towns"
    with leaving_at_once(), progress(what, quiet=settings.quiet) as done:
        reward = pretrain(recipe, done, kept)
    write_reward(output, reward)
    aspects = ", ".join(reward.aspects)
    say(f"{output}: a reward of {aspects}; astray fit --reward {output} begins with it", quiet=settings.quiet)
