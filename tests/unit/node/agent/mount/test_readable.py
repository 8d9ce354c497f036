"""The list of blocks that became readable: what followers of it hear, and how long it gets."""

from tdcs.node.agent.mount.readable import ReadableBlocks


def test_blocks_that_are_dropped_and_come_again_do_not_make_the_list_longer_and_longer() -> None:
    readable, blocks = ReadableBlocks(), list(range(3_000))
    for _ in range(20):
        readable.add(blocks)
    assert len(readable._blocks) <= 3 * len(blocks)


def test_who_follows_the_list_hears_of_every_block_when_a_new_one_begins() -> None:
    readable = ReadableBlocks()
    heard: set[int] = set()
    instance = place = 0
    for number in range(30):
        readable.add(range(number * 100, number * 100 + 1_000))
        while True:
            news = readable.after(instance=instance, place=place, wait_seconds=0)
            if instance not in (0, news.instance):
                heard.clear()  # as a puller does: places in the list before it mean nothing
            instance, place = news.instance, news.place
            heard.update(news.blocks)
            if not len(news.blocks):
                break
    assert heard == set(range(3_900))


def test_a_list_without_repetitions_goes_on_however_long_it_is() -> None:
    readable = ReadableBlocks()
    readable.add([1])
    first = readable.after(instance=0, place=0, wait_seconds=0)
    readable.add(range(2, 20_000))
    news = readable.after(instance=first.instance, place=first.place, wait_seconds=0)
    assert (news.instance, list(news.blocks)) == (first.instance, list(range(2, 20_000)))
