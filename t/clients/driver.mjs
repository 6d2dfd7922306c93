// A program that uses clients/node; test_clients.py says what it does.

import readline from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { lock, LockError } from '../../clients/node/zk-lock.mjs';

const [url, name, number, ...words] = process.argv.slice(2);
const options = { url };
for (const word of words) {
    const [, key, value] = /(\w+)=(.*)/.exec(word);
    options[key] = ['wait', 'ttl', 'permits', 'loop'].includes(key)
        ? Number(value)
        : key === 'durable' ? value === '1' : value;
}
if (options.auth) {
    options.headers = { Authorization: options.auth };
}

const lines = readline.createInterface({ input: process.stdin })[
    Symbol.asyncIterator]();

async function use(held) {
    held.signal.addEventListener(
        'abort', () => console.log('lost', held.signal.reason.message));
    console.log('held', held.token, String(held.fencingToken), held.owner,
                held.mode);
    for (;;) {
        const { value, done } = await lines.next();
        if (value === 'raise') {
            throw new Error('raised');
        }
        if (value === 'early') {
            await held.release();
            return;
        }
        if (done || value === 'release') {
            return;
        }
        console.log(held.isHeld() ? 'yes' : 'no');
    }
}

async function rounds(work) {
    let over = false;
    lines.next().then(() => { over = true; });
    while (!over) {
        await lock(name, options, async (held) => {
            console.log('in', held.owner, String(held.fencingToken));
            await sleep(work * 1000);
            held.check();
            console.log('out', held.owner, String(held.fencingToken));
        });
    }
}

try {
    let granted = 0;
    let waiting = [];
    const hold = () => lock(name, options, async (held) => {
        waiting = Array.from({ length: Number(number) }, () => lock(
            name, { ...options, wait: 120 }, () => { granted += 1; }));
        await use(held);
    });
    await ('loop' in options ? rounds(options.loop) : hold());
    await Promise.all(waiting);
    if (number !== '0') {
        console.log('granted', granted);
    }
    console.log('end released');
} catch (error) {
    const kind = error instanceof LockError ? `${error.name.toLowerCase()} `
        : '';
    console.log(`end ${kind}${error.message}`);
}
process.stdin.destroy();
