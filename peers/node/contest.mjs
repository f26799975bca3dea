// Runs a command again and again under a lock in Redis, as `kilit run` does, with node-redlock.
//
//     contest.mjs URL KEY ROUNDS COMMAND...
//
// Whether the lock excluded anybody is not judged here, but by what the command leaves behind. KILIT_PEERS_NODE is the
// folder where the packages are installed.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.KILIT_PEERS_NODE}/`);
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const TTL_MS = 5000;

const [url, key, rounds, command, ...args] = process.argv.slice(2);
const server = new Redis(url);
// By itself it looks five times a second and gives up after ten looks.
const redlock = new Redlock([server], { retryCount: -1, retryDelay: 10, retryJitter: 5 });
for (let round = 0; round < Number(rounds); round++) {
    const lock = await redlock.acquire([key], TTL_MS);
    try {
        execFileSync(command, args, { stdio: "inherit" });
    } finally {
        // Fails when it was lost meanwhile, which no second try would change.
        await redlock.release(lock, { retryCount: 0 });
    }
}
server.disconnect();
