"""The index of the filesystem store: places in little memory, and the order of what came back among what waits."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry
from postroom_daemon.stores.base import Cursor
from postroom_daemon.stores.filesystem.index import Index
from postroom_daemon.stores.filesystem.pages import FilesystemPages
from postroom_daemon.stores.filesystem.places import Places, key_of
from postroom_daemon.stores.filesystem.sorted_keys import Sorted, SortedNames

ID = "01a21eba-1678-7c3a-9b1e-5d0f6a2e8401"
PLAIN = f"p7fffffff-000000000001207-{ID}~v1209~w1795811841655~b86402117.json"


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
    places.end()
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


def test_a_returned_message_is_in_publish_order_and_folders_may_overlap() -> None:
    entries = {
        f"msg:q:{number}": Entry(f"msg:q:{number}", "q", State.READY, 0, number, 0, 0) for number in range(1, 13)
    }
    index = Index("inbox", entries.get)
    lane = index.lane("q", "")
    lane.add_run(0, array("Q", [5, 6, 9]), ["5", "6", "9"])
    lane.add_run(0, array("Q", [1, 2]), ["1", "2"])
    lane.add_run(0, array("Q", [7, 10]), ["7", "10"])
    lane.call(0, 3, "msg:q:3")
    index.complete()
    for number in (11, 8, 4, 12):
        index.add(entries[f"msg:q:{number}"])
    order = []
    while head := index.next_ready("q", "c"):
        order.append(head.seq)
        head.state = State.INFLIGHT
        index.take(head, "q")
    assert order == list(range(1, 13))


def test_an_id_is_one_object_for_the_order_and_for_the_location() -> None:
    places = Places("inbox")
    assert places.short(ID) is places.short(ID)
    assert key_of("msg:q", places.short(ID)) == f"msg:q:{ID}"


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
    pages = FilesystemPages(index, entries.get, lambda: None, SortedNames(), SortedNames())
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
