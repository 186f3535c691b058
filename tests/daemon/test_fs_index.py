"""The index of the filesystem store: places in little memory, and the order of what came back among what waits."""

from __future__ import annotations

from array import array
from collections import deque
from random import Random

import pytest

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry
from postroom_daemon.stores.base import Cursor
from postroom_daemon.stores.filesystem import keys as fs_keys
from postroom_daemon.stores.filesystem import places as fs_places
from postroom_daemon.stores.filesystem.index import Index
from postroom_daemon.stores.filesystem.keys import KeyQueue
from postroom_daemon.stores.filesystem.pages import FilesystemPages
from postroom_daemon.stores.filesystem.places import Places
from postroom_daemon.stores.filesystem.sorted_keys import Sorted, SortedNames
from postroom_daemon.stores.filesystem.uuids import halves_of, id_of_halves

ID = "01a21eba-1678-7c3a-9b1e-5d0f6a2e8401"
PLAIN = f"p7fffffff-000000000001207-{ID}~v1209~w1795811841655~b86402117.json"


def uuid(number: int) -> str:
    """A message id of its own for each number, in the order of numbers."""
    return f"{number:08x}-1678-7c3a-9b1e-{number * 7919 % 2**48:012x}"


@pytest.mark.parametrize(
    "place",
    [
        f"inbox/{PLAIN}",
        f"inbox/00042/{PLAIN}",
        f"inbox/100000/{PLAIN}",
        f"inbox/00001/00002/{PLAIN}",
        f"dlq/{PLAIN}",
        f"inbox/{PLAIN.replace('~v1209', '~v01209')}",
        f"inbox/{PLAIN.replace('~v1209', '~v99999999')}",
        f"inbox/{PLAIN.replace('~w1795811841655', '~w99999999999999')}",
        f"inbox/{PLAIN.replace('~b86402117', '')}",
        f"inbox/{PLAIN.replace('~b86402117', '~b86402117~a3~f17')}",
        f"inbox/{PLAIN.replace('~b86402117', '~b86402117~s1024')}",
        f"inbox/{PLAIN.replace('~b86402117', '~b86402117~s0')}",
        f"inbox/{PLAIN.replace('~b86402117', '~b86402117~s9999999999')}",
        f"inbox/{PLAIN.replace('000000000001207', '999999999999999')}",
        f"inbox/{PLAIN.replace('7fffffff', 'ffffffff')}",
        f"inbox/{PLAIN.replace('8401~', '8402~')}",
    ],
)
@pytest.mark.parametrize("id_", [ID, "a", ID.replace("-", ""), ID.upper(), f"x:{ID}"])
def test_a_location_is_returned_as_it_was_stored(place: str, id_: str) -> None:
    places = Places("inbox")
    places[f"msg:q:{id_}"] = place
    places[f"msg:other:{id_}"] = "other"
    assert places[f"msg:q:{id_}"] == place
    listing = places.listing()
    assert list(listing.behind("")) == [f"msg:other:{id_}", f"msg:q:{id_}"]
    assert list(listing.behind(f"msg:other:{id_}")) == [f"msg:q:{id_}"]
    assert list(listing.behind(f"msg:q:{id_}")) == []
    places.pop(f"msg:q:{id_}")
    assert f"msg:q:{id_}" not in places and places.get(f"msg:q:{id_}") is None


def test_a_folder_of_plain_names_is_indexed_and_the_rest_returned() -> None:
    places = Places("inbox")
    odd = [PLAIN.replace("8401", "8403").replace("~w1795811841655", "~a1"), "notes.txt"]
    taken, others = places.take_plain("q", 7, [PLAIN, PLAIN, *odd])
    assert [numbers for *numbers, _ in taken] == [[0x7FFFFFFF, 1207, 1209, 0]]
    assert others == [PLAIN, *odd]  # the second is another file of the same message
    assert places[f"msg:q:{ID}"] == f"inbox/00007/{PLAIN}"
    earlier = PLAIN.replace("01a21eba", "01a21eb9")
    assert places.take_plain("q", 8, [PLAIN, earlier]) == (
        [(0x7FFFFFFF, 1207, 1209, 0, halves_of(ID[:7] + "9" + ID[8:]))],
        [PLAIN],
    )
    assert places[f"msg:q:{ID}"] == f"inbox/00007/{PLAIN}"


def test_a_returned_message_is_in_publish_order_and_folders_may_overlap() -> None:
    keys = {number: f"msg:q:{uuid(number)}" for number in range(1, 15)}
    entries = {key: Entry(key, "q", State.READY, 0, number, 0, 0) for number, key in keys.items()}
    index = Index("inbox", entries.get)
    lane = index.lane("q", "")
    for folder in ([5, 6, 9], [1, 2], [7, 10], [3, 8, 11]):
        halves = [half for number in folder for half in halves_of(uuid(number)) or ()]
        lane.add_run(0, array("Q", folder), array("Q", halves))
    lane.call(0, 12, keys[12])
    index.complete()
    for number in (13, 4, 14):
        index.add(entries[keys[number]])
    order = []
    while head := index.next_ready("q", "c"):
        order.append(head.seq)
        head.state = State.INFLIGHT
        index.take(head, "q")
    assert order == list(range(1, 15))


@pytest.mark.parametrize("id_", [ID, "0" * 8 + ID[8:], "f" * 8 + ID[8:], ID[:-1] + "0"])
def test_the_halves_of_an_id_are_the_id(id_: str) -> None:
    halves = halves_of(id_)
    assert halves and id_of_halves(*halves) == id_
    assert halves_of(id_.upper()) is None and halves_of(id_ + "0") is None and halves_of(f"+{id_[1:]}") is None


def test_keys_come_out_as_they_went_in_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_PIECE", 4), ("_LOOSE", 10), ("_GONE_LIMIT", 8)):
        monkeypatch.setattr(fs_keys, name, size)
    numbers, keys, model = Random(2), KeyQueue("msg:q"), deque[str]()
    zero = "00000000-0000-0000-9b1e-5d0f6a2e8401"
    for step in range(4000):
        if numbers.random() < (0.7 if step % 1000 < 500 else 0.3):
            id_ = numbers.choice([uuid(step), uuid(step), zero, str(step)])
            key = f"msg:{numbers.choice('qqp')}:{id_}"
            keys.append(key)
            model.append(key)
        elif model:
            assert keys.first() == model.popleft()
            keys.popleft()
        if step == 500:
            folder = [half for number in range(9) for half in halves_of(uuid(number)) or ()]
            keys.extend_packed(array("Q", folder))
            model.extend(f"msg:q:{uuid(number)}" for number in range(9))
        if step % 50 == 0:
            assert len(keys) == len(model)
            assert [keys[at] for at in range(len(keys))] == list(model)
            begin = numbers.randrange(len(model) + 1)
            assert list(keys.behind(begin)) == list(model)[begin:]
    while model:
        assert keys.first() == model.popleft()
        keys.popleft()
    assert keys.first() == "" and len(keys) == 0


@pytest.mark.parametrize("in_order", [0, 0.8, 1])
def test_places_behave_like_a_dictionary(in_order: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_BLOCK_ROWS", 8), ("_RUNS_LIMIT", 3), ("_GONE_LIMIT", 2)):
        monkeypatch.setattr(fs_places, name, size)
    numbers, places, model = Random(3), Places("inbox"), dict[str, str]()
    gone: list[str] = []
    for step in range(1, 3000):
        id_ = uuid(step if numbers.random() < in_order else numbers.randrange(10**6))
        key = f"msg:{numbers.choice('qp')}:{id_}"
        choice = numbers.random()
        if choice < 0.5 or not model:
            if gone and numbers.random() < 0.2:
                key = numbers.choice(gone)
        else:
            key = numbers.choice(list(model)[:20] if step % 2 else list(model))
        if choice < 0.6 or not model:
            folder = numbers.choice(["inbox", "inbox", "inbox/00003", "processing"])
            letter = "u000000000000009" if folder == "processing" else "p7fffffff"
            name = f"{letter}-{step:015d}-{key.rpartition(':')[2]}~v{step + 2}~w17~b{step}~s9.json"
            places[key] = model[key] = f"{folder}/{name}"
        else:
            places.pop(key)
            del model[key]
            gone.append(key)
        if step % 100 == 0:
            assert {key: places.get(key) for key in [*model, *gone]} == {**dict.fromkeys(gone), **model}
            listed = list(places.listing().behind(""))
            assert listed == sorted(set(listed)) and set(listed) >= set(model)
            after = numbers.choice(listed)
            assert list(places.listing().behind(after)) == listed[listed.index(after) + 1 :]


def test_a_listing_stays_as_it_was_made() -> None:
    places = Places("inbox")
    ids = [uuid(number) for number in range(1, 200)]
    name = "inbox/p7fffffff-000000000000007-{}~v7~w17~b17.json"
    for id_ in ids[:100]:
        places[f"msg:q:{id_}"] = name.format(id_)
    listing = places.listing()
    for id_ in ids[:90]:
        places.pop(f"msg:q:{id_}")
    for id_ in ids[100:]:
        places[f"msg:q:{id_}"] = name.format(id_)
    places[f"msg:q:{ids[95]}"] = "processing/x"
    assert list(listing.behind("")) == [f"msg:q:{id_}" for id_ in ids[:100]]


def test_a_sorted_set_behaves_like_a_sorted_list() -> None:
    numbers = Random(1)
    kept: Sorted[int] = Sorted()
    for value in range(0, 3000, 3):
        kept.add(value)
    model = set(range(0, 3000, 3))
    for _ in range(6000):
        value = numbers.randrange(4000)
        if numbers.random() < 0.5:
            kept.add(value)
            model.add(value)
        else:
            kept.discard(value)
            model.discard(value)
    assert list(kept) == sorted(model) and kept.first() == min(model)
    for after in (-1, 0, 1777, 3999):
        assert list(kept.behind(after)) == [value for value in sorted(model) if value > after]
        assert list(kept.behind(after, inclusive=True)) == [value for value in sorted(model) if value >= after]
    for value in list(kept):
        kept.discard(value)
    assert not kept and kept.first() is None and list(kept.behind(0)) == []


def test_pages_of_a_backlog_skip_messages_removed_from_its_middle() -> None:
    entries = {f"msg:q:{n}": Entry(f"msg:q:{n}", "q", State.READY, n % 3, n, 0, 0) for n in range(1, 5001)}
    index = Index("inbox", entries.get)
    pages = FilesystemPages(index, entries.get, lambda key: None, lambda: None, lambda name: None, SortedNames())
    for entry in entries.values():
        index.add(entry)
    for entry in list(entries.values()):
        if entry.seq % 7 and entry.seq > 20:
            index.take(entries.pop(entry.key), "q")
    back = entries["msg:q:14"]
    index.take(back, "q")
    index.add(back)  # as one whose lease has ended: it stands in two places
    seen: list[int] = []
    after: Cursor = ()
    while True:
        page, after = pages.scan("q", State.READY, after, 10)
        seen += [entry.seq for entry in page]
        if not after:
            break
    assert seen == [entry.seq for entry in sorted(entries.values(), key=lambda e: (-e.priority, e.seq))]
    assert [entry.seq for entry in pages.oldest("q", 3)] == [1, 2, 3]
