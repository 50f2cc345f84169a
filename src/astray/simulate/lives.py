"""Kinds of life: what people of each kind do on one day."""

from __future__ import annotations

import numpy as np

from astray.simulate.diary import Diary, Life
from astray.simulate.places import stream
from astray.simulate.routes import CYCLE, DRIVE, WALK
from astray.simulate.streets import Ints


def commuter(book: Diary, day: int) -> None:
    """Works five days a week at the same hours, with errands, sport and friends; shops and goes out when free."""
    works = day % 7 < 5 and day % 7 != book.who.home_office and book.rng.random() > 0.05
    if works:
        _working_day(book, day)
    else:
        _free_day(book, day)


def _working_day(book: Diary, day: int) -> None:
    who, rng = book.who, book.rng
    mode = book.mode_to(who.work)
    leaves, returns = book.about(who.leaves, 0.2), book.about(who.returns, 0.3)
    if who.school >= 0 and rng.random() < 0.8:
        book.tour(day, mode, [who.home, who.school, who.work], [leaves - 0.3, leaves])
    else:
        book.tour(day, mode, [who.home, who.work], [leaves])
    if rng.random() < who.visits:
        client, begin = book.anywhere(), rng.uniform(9.5, 14.5)
        ride = CYCLE if mode == WALK else mode
        book.tour(day, ride, [who.work, client, who.work], [begin, begin + rng.uniform(0.8, 1.6)])
    elif rng.random() < who.sociable and 300 < book.places.distance(who.work, who.cafe) < 1500:
        begin = book.about(12.3, 0.2)
        book.tour(day, WALK, [who.work, who.cafe, who.work], [begin, begin + rng.uniform(0.7, 1.0)])
    if day % 7 in who.gym_days and rng.random() < 0.9:
        trained = book.about(returns + 1.7, 0.15)
        book.tour(day, mode, [who.work, who.gym, who.home], [returns, trained])
    elif rng.random() < 0.25:
        shop = book.one_of(who.shops, novelty=0.15)
        book.tour(day, mode, [who.work, shop, who.home], [returns, book.about(returns + 0.8, 0.15)])
    else:
        book.tour(day, mode, [who.work, who.home], [returns])
    if rng.random() < who.sociable:
        evening = book.about(max(20.0, who.returns + 2.6), 0.4)
        book.outing(day, book.one_of(who.friends, novelty=0.3), evening)


def _free_day(book: Diary, day: int) -> None:
    who, rng = book.who, book.rng
    if who.errands > 0.25 and rng.random() < 0.5 and book.places.distance(who.home, who.haunts[-1]) < 4000.0:
        book.stroll(day, who.haunts[-1], book.about(8.5, 0.5))
    if rng.random() < 0.7:
        book.outing(day, book.one_of(who.shops, novelty=0.2), book.about(10.6, 0.5))
    if rng.random() < 0.5:
        book.outing(day, book.one_of(who.haunts + who.friends, novelty=0.35), book.about(15.0, 0.7))


def shift_worker(book: Diary, day: int) -> None:
    """Five days on and two off, a week each of early, late and night shifts; errands when there is time."""
    who, rng = book.who, book.rng
    if (day + who.index) % 7 >= 5 or rng.random() < 0.05:
        _free_day(book, day)
        return
    turn = (day // 7 + who.index) % 3
    starts = (6.0, 14.0, 22.0)[turn]
    errand = (17.0, 10.0, 16.5)[turn]
    errs = rng.random() < 0.35
    if errs and turn > 0:
        book.outing(day, book.one_of(who.shops + who.haunts, novelty=0.15), book.about(errand, 0.6), (0.5, 1.5))
    begin, end = book.about(starts - 0.6, 0.1), book.about(starts + 8.1, 0.12)
    book.tour(day, book.mode_to(who.work), [who.home, who.work, who.home], [begin, end])
    if errs and turn == 0:
        book.outing(day, book.one_of(who.shops + who.haunts, novelty=0.15), book.about(errand, 0.6), (0.5, 1.5))


def student(book: Diary, day: int) -> None:
    """Lectures at hours that differ by weekday and term, the canteen or library after them, and nightlife."""
    who, rng = book.who, book.rng
    timetable = stream(book.town.seed, 11, who.index, day // 45, day % 7)
    first, hours = float(timetable.choice([8.0, 9.0, 10.0, 12.0, 14.0])), float(timetable.uniform(1.5, 6.5))
    if day % 7 < 5 and timetable.random() < 0.85 and rng.random() < 0.85:
        mode, begin, end = book.mode_to(who.work), book.about(first - 0.5, 0.15), book.about(first + hours, 0.2)
        if rng.random() < 0.4:
            stays = rng.uniform(0.7, 2.5)
            there = book.one_of((who.cafe, *who.haunts), novelty=0.1)
            book.tour(day, mode, [who.home, who.work, there, who.home], [begin, end, end + stays])
        else:
            book.tour(day, mode, [who.home, who.work, who.home], [begin, end])
    elif rng.random() < 0.5:
        book.outing(day, book.one_of(who.shops + who.haunts, novelty=0.25), book.about(14.0, 1.5))
    if rng.random() < (0.5 if day % 7 in (3, 4, 5) else 0.5 * who.sociable):
        book.outing(day, book.one_of(who.haunts + who.friends, novelty=0.3), book.about(21.2, 0.7), (2.0, 5.0))


def pensioner(book: Diary, day: int) -> None:
    """Late mornings at the shops near by, walks, and seldom something farther."""
    who, rng = book.who, book.rng
    if who.index % 2 and rng.random() < 0.6:
        book.stroll(day, who.haunts[-1], book.about(8.2, 0.3))
    if rng.random() < 0.7:
        book.outing(day, book.one_of(who.shops, novelty=0.03), book.about(10.2, 0.5), (0.3, 1.2))
    if rng.random() < 0.45:
        book.outing(day, book.one_of(who.haunts, novelty=0.05), book.about(15.0, 0.6), (0.5, 2.0))
    elif rng.random() < 0.12:
        book.outing(day, book.one_of(who.friends, novelty=0.4), book.about(13.5, 1.0), (1.5, 3.0))


def parent(book: Diary, day: int) -> None:
    """Children to school and back, part-time work on some mornings, shops and playgrounds around."""
    who, rng = book.who, book.rng
    if day % 7 >= 5:
        _free_day(book, day)
        return
    mode, out, back = book.mode_to(who.school), book.about(7.8, 0.1), book.about(15.6, 0.15)
    if day % 7 not in who.gym_days:
        book.tour(day, mode, [who.home, who.school], [out])
        ride = mode if mode != WALK else book.mode_to(who.work, who.school)
        book.tour(day, ride, [who.school, who.work, who.school], [out + 0.3, back - 0.5])
    else:
        book.tour(day, mode, [who.home, who.school, who.home], [out, out + 0.2])
        if rng.random() < 0.6:
            book.outing(day, book.one_of(who.shops, novelty=0.1), book.about(10.0, 0.6), (0.5, 1.5))
        book.tour(day, mode, [who.home, who.school], [back - 0.4])
    if rng.random() < 0.35:
        play = book.one_of(who.haunts, novelty=0.1)
        book.tour(day, mode, [who.school, play, who.home], [back, back + rng.uniform(0.8, 1.8)])
    else:
        book.tour(day, mode, [who.school, who.home], [back])


def courier(book: Diary, day: int) -> None:
    """From the depot round the doors of one quarter, another one each weekday, all day long."""
    who, rng = book.who, book.rng
    if day % 7 == 6 or rng.random() < 0.08:
        _free_day(book, day)
        return
    stock = book.places.of_kind("home")
    quarter = int(stream(book.town.seed, 12, who.index, day % 7 if who.curiosity > 0.5 else 0).choice(stock))
    near = stock[np.argsort(book.places.distance(quarter, stock))[:150]]
    doors = _round(book, rng.choice(near, int(rng.integers(6, 16)), replace=False))
    begin = book.about(8.0, 0.3)
    hours = begin + 0.6 + np.cumsum(rng.uniform(0.1, 0.5, len(doors) + 1))
    if who.home != who.work:
        book.tour(day, book.mode_to(who.work), [who.home, who.work], [begin - 0.7])
    ride = CYCLE if who.cyclist else DRIVE
    book.tour(day, ride, [who.work, *doors, who.work], [begin, *hours[:-1].tolist()])
    if who.home != who.work:
        book.tour(day, book.mode_to(who.work), [who.work, who.home], [float(hours[-1]) + 0.5])


def _round(book: Diary, doors: Ints) -> list[int]:
    """The doors in the order of a round: always on to the nearest of those that are left."""
    here, left, order = book.who.work, list(doors.tolist()), []
    while left:
        here = left.pop(int(np.argmin(book.places.distance(here, np.array(left)))))
        order.append(here)
    return order


def taxi(book: Diary, day: int) -> None:
    """Fares from popular places to popular places all over town, and back to a stand when there is none."""
    who, rng = book.who, book.rng
    if (day + who.index) % 7 == 6:
        return
    popular = book.town.popularity[: book.town.local]
    stands = book.places.of_kind("stand")
    hour = book.about(who.leaves - 1.0, 0.4) + (9.0 if (day // 14 + who.index) % 3 == 2 else 0.0)
    closes, here = hour + rng.uniform(7.0, 10.5), who.home
    while hour < closes:
        free = len(stands) > 0 and rng.random() < 0.5
        if free:
            start = int(stands[np.argmin(book.places.distance(here, stands))])
        else:
            nearby = popular * np.exp(-book.places.distance(here, np.arange(len(popular))) / 1500.0)
            start = int(rng.choice(len(popular), p=nearby / nearby.sum()))
        weight = popular * (book.places.distance(start, np.arange(len(popular))) > 700.0)
        goal = int(rng.choice(len(popular), p=weight / weight.sum()))
        if who.curiosity < 1.0:  # this one records the drive to the passenger too
            book.tour(day, DRIVE, [here, start], [hour])
        book.tour(day, DRIVE, [start, goal], [hour + 0.2])
        here, hour = goal, hour + rng.uniform(0.5, 1.2)
    book.tour(day, DRIVE, [here, who.home], [hour])


def holiday(book: Diary, day: int) -> None:
    """Away: on foot between the room, the beach and the restaurants of a resort."""
    who, rng = book.who, book.rng
    for hour, chance in ((10.2, 0.8), (15.0, 0.5), (19.5, 0.7)):
        if rng.random() < chance:
            there = int(rng.choice(who.haunts))
            book.tour(day, WALK, [who.home, there, who.home], [hour, book.about(hour + rng.uniform(1.0, 2.5), 0.3)])


LIVES: dict[str, Life] = {
    "commuter": commuter,
    "shift": shift_worker,
    "student": student,
    "pensioner": pensioner,
    "parent": parent,
    "courier": courier,
    "taxi": taxi,
    "holiday": holiday,
}
"""What people of each kind of life do on a day."""
