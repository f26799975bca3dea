// The loops of kilit's bench, with a locker of Node.js.
//
//     loops.mjs "node redlock"|redis-semaphore URL
//
// Answers each line of stdin with a number: `uncontended TASKS MILLISECONDS` with acquisitions a second, of a lock each;
// `drain WAITERS` with the milliseconds until all who wait for one lock have had it once. KILIT_PEERS_NODE is the folder
// where the packages are installed.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.KILIT_PEERS_NODE}/`);
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
const { Mutex } = require("redis-semaphore");

const TTL_MS = 30_000;

const [client, url] = process.argv.slice(2);
const server = new Redis(url);
// Waiting for ever, and otherwise as it comes: a look every 200 ms.
const redlock = new Redlock([server], { retryCount: -1 });

// Each takes a lock of this name and returns how to give it back.
const takers = {
    "node redlock": async (name) => {
        const lock = await redlock.acquire([name], TTL_MS);
        return () => redlock.release(lock);
    },
    "redis-semaphore": async (name) => {
        // It renews by itself, for which a timer is set and cleared each time; as for the others, nobody renews here.
        const options = { lockTimeout: TTL_MS, acquireTimeout: TTL_MS, refreshInterval: 0 };
        const mutex = new Mutex(server, name, options);
        await mutex.acquire();
        return () => mutex.release();
    },
};
const take = takers[client];

async function uncontended(tasks, milliseconds) {
    const begun = performance.now();
    let turns = 0;
    await all(tasks, async (i) => {
        while (performance.now() < begun + milliseconds) {
            const release = await take(`${client}-${i}`);
            await release();
            turns++;
        }
    });
    return turns / ((performance.now() - begun) / 1000);
}

async function drain(waiters) {
    const open = await take(`${client}-drain`);
    const waiting = all(waiters, async () => {
        const release = await take(`${client}-drain`);
        await release();
    });
    // All have looked once, and wait in their own way.
    await new Promise((done) => setTimeout(done, 500));
    const begun = performance.now();
    await open();
    await waiting;
    return performance.now() - begun;
}

function all(count, task) {
    return Promise.all(Array.from({ length: count }, (_, i) => task(i)));
}

const loops = { uncontended, drain };
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
    const [loop, ...numbers] = line.split(" ");
    console.log(await loops[loop](...numbers.map(Number)));
}
server.disconnect();
