"""Runs a command again and again under a lock in Redis, as `kilit run` does, with a locker of Python.

    contest.py redis-py|python-redis-lock URL KEY ROUNDS COMMAND...

Whether the lock excluded anybody is not judged here, but by what the command leaves behind.
"""

import subprocess
import sys

import redis
import redis_lock

TTL = 5
# python-redis-lock puts this before the names of its keys.
PREFIX = "lock:"


def redis_py(server, key):
    # By itself it looks ten times a second, and would seldom find a lock free that many want.
    return server.lock(key, timeout=TTL, sleep=0.01)


def python_redis_lock(server, key):
    # Waits for its own kind to leave a sign in a list; of others it learns when the TTL is over.
    if not key.startswith(PREFIX):
        sys.exit(f"contest.py: the keys of python-redis-lock begin with {PREFIX}")
    return redis_lock.Lock(server, key.removeprefix(PREFIX), expire=TTL)


def main(client, url, key, rounds, *command):
    locks = {"redis-py": redis_py, "python-redis-lock": python_redis_lock}
    # python-redis-lock waits for an answer as long as its TTL.
    server = redis.Redis.from_url(url, socket_timeout=4 * TTL)
    for _ in range(int(rounds)):
        lock = locks[client](server, key)
        if not lock.acquire():
            sys.exit("contest.py: the lock was not given")
        try:
            subprocess.run(command, check=True)
        finally:
            # Fails when it was lost meanwhile.
            lock.release()


main(*sys.argv[1:])
