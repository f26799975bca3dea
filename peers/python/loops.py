"""The loops of kilit's bench, with a locker of Python.

    loops.py redis-py|python-redis-lock URL

Answers each line of stdin with a number: `uncontended TASKS MILLISECONDS` with acquisitions a second, of a lock each;
`drain WAITERS` with the milliseconds until all who wait for one lock have had it once. A task is a thread.
"""

import sys
import threading
import time

import redis
import redis_lock

TTL = 30


def main(client, url):
    # Each thread takes a connection from the pool, and waits there for its answer.
    server = redis.Redis.from_url(url)
    locks = {
        "redis-py": lambda name: server.lock(f"redis-py-{name}", timeout=TTL),
        "python-redis-lock": lambda name: redis_lock.Lock(server, name, expire=TTL),
    }
    loops = {"uncontended": uncontended, "drain": drain}
    print("ready", flush=True)
    for line in sys.stdin:
        loop, *numbers = line.split()
        print(loops[loop](locks[client], *map(int, numbers)), flush=True)


def uncontended(lock, tasks, milliseconds):
    begun = time.perf_counter()
    end = begun + milliseconds / 1000
    turns = []

    def task(name):
        mine, count = lock(name), 0
        while time.perf_counter() < end:
            assert mine.acquire(blocking=False)
            mine.release()
            count += 1
        turns.append(count)

    join(start(task, tasks))
    assert len(turns) == tasks
    return sum(turns) / (time.perf_counter() - begun)


def drain(lock, waiters):
    served = []

    def task(_):
        mine = lock("drain")
        assert mine.acquire()
        served.append(1)
        mine.release()

    gate = lock("drain")
    assert gate.acquire()
    running = start(task, waiters)
    # All have looked once, and wait in their own way.
    time.sleep(0.5)
    begun = time.perf_counter()
    gate.release()
    join(running)
    assert len(served) == waiters
    return (time.perf_counter() - begun) * 1000


def start(task, count):
    running = [threading.Thread(target=task, args=(f"bench-{i}",)) for i in range(count)]
    for thread in running:
        thread.start()
    return running


def join(running):
    for thread in running:
        thread.join()


main(*sys.argv[1:])
