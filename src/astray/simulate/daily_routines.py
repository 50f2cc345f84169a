"""Daily routines: what people of each kind of life do on one day."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from astray.simulate.planned_trips import Diary
from astray.simulate.routes import CYCLE, DRIVE, WALK
from astray.simulate.streets import Ints

Routine = Callable[[Diary, int], None]  # adds a person's trips of one day to the diary


def commuter(diary: Diary, day: int) -> None:
    """Works five days a week at regular hours, with errands, sport and friends; shops and goes out on free days."""
    who, rng = diary.who, diary.rng
    if day % 7 >= 5 or day % 7 == who.home_office or rng.random() <= 0.05:
        _free_day(diary, day)
        return
    mode = diary.mode_to(who.work)
    leaves, returns = diary.about(who.leaves, 0.2), diary.about(who.returns, 0.3)
    if who.school >= 0 and rng.random() < 0.8:
        diary.tour(day, mode, [who.home, who.school, who.work], [leaves - 0.3, leaves])
    else:
        diary.tour(day, mode, [who.home, who.work], [leaves])
    if rng.random() < who.visits:
        client, begin = diary.anywhere(), rng.uniform(9.5, 14.5)
        ride = CYCLE if mode == WALK else mode
        diary.tour(day, ride, [who.work, client, who.work], [begin, begin + rng.uniform(0.8, 1.6)])
    elif rng.random() < who.sociable and 300 < diary.places.distance(who.work, who.cafe) < 1500:
        begin = diary.about(12.3, 0.2)
        diary.tour(day, WALK, [who.work, who.cafe, who.work], [begin, begin + rng.uniform(0.7, 1.0)])
    if day % 7 in who.gym_days and rng.random() < 0.9:
        trained = diary.about(returns + 1.7, 0.15)
        diary.tour(day, mode, [who.work, who.gym, who.home], [returns, trained])
    elif rng.random() < 0.25:
        shop = diary.one_of(who.shops, novelty=0.15)
        diary.tour(day, mode, [who.work, shop, who.home], [returns, diary.about(returns + 0.8, 0.15)])
    else:
        diary.tour(day, mode, [who.work, who.home], [returns])
    if rng.random() < who.sociable:
        evening = diary.about(max(20.0, who.returns + 2.6), 0.4)
        diary.outing(day, diary.one_of(who.friends, novelty=0.3), evening)


def _free_day(diary: Diary, day: int) -> None:
    who, rng = diary.who, diary.rng
    if who.errands > 0.25 and rng.random() < 0.5 and diary.places.distance(who.home, who.haunts[-1]) < 4000.0:
        diary.stroll(day, who.haunts[-1], diary.about(8.5, 0.5))
    if rng.random() < 0.7:
        diary.outing(day, diary.one_of(who.shops, novelty=0.2), diary.about(10.6, 0.5))
    if rng.random() < 0.5:
        diary.outing(day, diary.one_of(who.haunts + who.friends, novelty=0.35), diary.about(15.0, 0.7))


def shift_worker(diary: Diary, day: int) -> None:
    """Works five days in seven; early, late and night shifts alternate by week; runs errands in between."""
    who, rng = diary.who, diary.rng
    if (day + who.index) % 7 >= 5 or rng.random() < 0.05:
        _free_day(diary, day)
        return
    turn = (day // 7 + who.index) % 3
    starts = (6.0, 14.0, 22.0)[turn]
    errand = (17.0, 10.0, 16.5)[turn]
    errs = rng.random() < 0.35
    if errs and turn > 0:
        diary.outing(day, diary.one_of(who.shops + who.haunts, novelty=0.15), diary.about(errand, 0.6), (0.5, 1.5))
    begin, end = diary.about(starts - 0.6, 0.1), diary.about(starts + 8.1, 0.12)
    diary.tour(day, diary.mode_to(who.work), [who.home, who.work, who.home], [begin, end])
    if errs and turn == 0:
        diary.outing(day, diary.one_of(who.shops + who.haunts, novelty=0.15), diary.about(errand, 0.6), (0.5, 1.5))


def student(diary: Diary, day: int) -> None:
    """Attends lectures at hours that differ by weekday and term, visits places after them, and goes out at night."""
    who, rng = diary.who, diary.rng
    timetable = diary.town.stream(11, who.index, day // 45, day % 7)
    first, hours = float(timetable.choice([8.0, 9.0, 10.0, 12.0, 14.0])), float(timetable.uniform(1.5, 6.5))
    if day % 7 < 5 and timetable.random() < 0.85 and rng.random() < 0.85:
        mode, begin, end = diary.mode_to(who.work), diary.about(first - 0.5, 0.15), diary.about(first + hours, 0.2)
        if rng.random() < 0.4:
            stays = rng.uniform(0.7, 2.5)
            there = diary.one_of((who.cafe, *who.haunts), novelty=0.1)
            diary.tour(day, mode, [who.home, who.work, there, who.home], [begin, end, end + stays])
        else:
            diary.tour(day, mode, [who.home, who.work, who.home], [begin, end])
    elif rng.random() < 0.5:
        diary.outing(day, diary.one_of(who.shops + who.haunts, novelty=0.25), diary.about(14.0, 1.5))
    if rng.random() < (0.5 if day % 7 in (3, 4, 5) else 0.5 * who.sociable):
        diary.outing(day, diary.one_of(who.haunts + who.friends, novelty=0.3), diary.about(21.2, 0.7), (2.0, 5.0))


def pensioner(diary: Diary, day: int) -> None:
    """Shops nearby in the late morning, goes for walks, and rarely travels farther."""
    who, rng = diary.who, diary.rng
    if who.index % 2 and rng.random() < 0.6:
        diary.stroll(day, who.haunts[-1], diary.about(8.2, 0.3))
    if rng.random() < 0.7:
        diary.outing(day, diary.one_of(who.shops, novelty=0.03), diary.about(10.2, 0.5), (0.3, 1.2))
    if rng.random() < 0.45:
        diary.outing(day, diary.one_of(who.haunts, novelty=0.05), diary.about(15.0, 0.6), (0.5, 2.0))
    elif rng.random() < 0.12:
        diary.outing(day, diary.one_of(who.friends, novelty=0.4), diary.about(13.5, 1.0), (1.5, 3.0))


def parent(diary: Diary, day: int) -> None:
    """Takes children to school and back, works part-time on some days, visits shops and playgrounds."""
    who, rng = diary.who, diary.rng
    if day % 7 >= 5:
        _free_day(diary, day)
        return
    mode, out, back = diary.mode_to(who.school), diary.about(7.8, 0.1), diary.about(15.6, 0.15)
    if day % 7 not in who.gym_days:
        diary.tour(day, mode, [who.home, who.school], [out])
        ride = mode if mode != WALK else diary.mode_to(who.work, who.school)
        diary.tour(day, ride, [who.school, who.work, who.school], [out + 0.3, back - 0.5])
    else:
        diary.tour(day, mode, [who.home, who.school, who.home], [out, out + 0.2])
        if rng.random() < 0.6:
            diary.outing(day, diary.one_of(who.shops, novelty=0.1), diary.about(10.0, 0.6), (0.5, 1.5))
        diary.tour(day, mode, [who.home, who.school], [back - 0.4])
    if rng.random() < 0.35:
        play = diary.one_of(who.haunts, novelty=0.1)
        diary.tour(day, mode, [who.school, play, who.home], [back, back + rng.uniform(0.8, 1.8)])
    else:
        diary.tour(day, mode, [who.school, who.home], [back])


def courier(diary: Diary, day: int) -> None:
    """Delivers from the depot to doors of one district all day; the district may differ by weekday."""
    who, rng = diary.who, diary.rng
    if day % 7 == 6 or rng.random() < 0.08:
        _free_day(diary, day)
        return
    stock = diary.places.of_kind("home")
    district = int(diary.town.stream(12, who.index, day % 7 if who.curiosity > 0.5 else 0).choice(stock))
    near = diary.places.nearest(district, stock, 150)
    doors = _delivery_round(diary, rng.choice(near, int(rng.integers(6, 16)), replace=False))
    begin = diary.about(8.0, 0.3)
    hours = begin + 0.6 + np.cumsum(rng.uniform(0.1, 0.5, len(doors) + 1))
    if who.home != who.work:
        diary.tour(day, diary.mode_to(who.work), [who.home, who.work], [begin - 0.7])
    ride = CYCLE if who.cyclist else DRIVE
    diary.tour(day, ride, [who.work, *doors, who.work], [begin, *hours[:-1].tolist()])
    if who.home != who.work:
        diary.tour(day, diary.mode_to(who.work), [who.work, who.home], [float(hours[-1]) + 0.5])


def _delivery_round(diary: Diary, doors: Ints) -> list[int]:
    """Orders doors so that the courier always goes to the nearest door that is left."""
    here, left, order = diary.who.work, list(doors.tolist()), []
    while left:
        here = left.pop(int(np.argmin(diary.places.distance(here, np.array(left)))))
        order.append(here)
    return order


def taxi(diary: Diary, day: int) -> None:
    """Drives passengers between popular places all over town, and waits at a stand in between."""
    who, rng = diary.who, diary.rng
    if (day + who.index) % 7 == 6:
        return
    popular = diary.town.popularity[: diary.town.local]
    stands = diary.places.of_kind("stand")
    hour = diary.about(who.leaves - 1.0, 0.4) + (9.0 if (day // 14 + who.index) % 3 == 2 else 0.0)
    closes, here = hour + rng.uniform(7.0, 10.5), who.home
    while hour < closes:
        free = len(stands) > 0 and rng.random() < 0.5
        if free:
            start = int(diary.places.nearest(here, stands, 1)[0])
        else:
            nearby = popular * np.exp(-diary.places.distance(here, np.arange(len(popular))) / 1500.0)
            start = int(rng.choice(len(popular), p=nearby / nearby.sum()))
        weight = popular * (diary.places.distance(start, np.arange(len(popular))) > 700.0)
        goal = int(rng.choice(len(popular), p=weight / weight.sum()))
        if who.curiosity < 1.0:  # this driver also records the way to the passenger
            diary.tour(day, DRIVE, [here, start], [hour])
        diary.tour(day, DRIVE, [start, goal], [hour + 0.2])
        here, hour = goal, hour + rng.uniform(0.5, 1.2)
    diary.tour(day, DRIVE, [here, who.home], [hour])


def holiday(diary: Diary, day: int) -> None:
    """Walks between the room, the beach and the restaurants of a resort."""
    who, rng = diary.who, diary.rng
    for hour, chance in ((10.2, 0.8), (15.0, 0.5), (19.5, 0.7)):
        if rng.random() < chance:
            there = int(rng.choice(who.haunts))
            diary.tour(day, WALK, [who.home, there, who.home], [hour, diary.about(hour + rng.uniform(1.0, 2.5), 0.3)])


ROUTINES: dict[str, Routine] = {
    "commuter": commuter,
    "shift": shift_worker,
    "student": student,
    "pensioner": pensioner,
    "parent": parent,
    "courier": courier,
    "taxi": taxi,
    "holiday": holiday,
}
"""The routine of each kind of life."""
