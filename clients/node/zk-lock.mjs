// A client of the lock gateway, for Node 18 and later, without dependencies.
//
//     import { lock } from './zk-lock.mjs';
//
//     await lock('nightly', { wait: 60, ttl: 30 }, async (held) => {
//         await fetch(url, { method: 'PUT', body, signal: held.signal,
//                            headers: { 'X-Fencing': held.fencingToken } });
//     });
//
// The function runs while the lock is held, and the lock is released when its
// promise is settled.  Timers renew the lease at a third of its time, and watch
// the clock; so the function must not keep the event loop busy for longer than
// that.  held.signal is aborted when the lock is lost, and the end of the
// function is a Lost then, too.
//
// The lease counts from before the last confirmed request was sent, by a clock
// that no clock change moves.  So this client says "lost" no later than the
// gateway does, as long as the event loop runs.  Acquires go through fetch();
// renewals and releases have a connection of their own each.

import { randomUUID } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';

// seconds: how much longer than its wait an answer may take; for one release,
// and all its repeats; between repeats without a Retry-After
const [PATIENCE, CONNECT, RELEASE, PAUSE] = [10, 5, 10, 1];

const now = () => performance.now() / 1000;
const timeLimit = (seconds) => AbortSignal.timeout(Math.ceil(seconds * 1000));
const sleep = (seconds) => new Promise(
    (wake) => setTimeout(wake, seconds * 1000));

export class LockError extends Error {
    // status is that of the last answer, 0 without an answer
    constructor(message, status = 0) {
        super(message);
        this.name = this.constructor.name;
        this.status = status;
    }
}

// the wait is over, and another claim has the lock
export class Taken extends LockError {}
// the wait is over, and a claim that may be held is gone after its ttl
export class Unreachable extends LockError {}
// the gateway refuses the call: the message says why
export class Refused extends LockError {}
// the lock was held, and is not sure to be held any more
export class Lost extends LockError {}

const DEFAULTS = {
    url: process.env.ZK_LOCK_URL || process.env.LOCKS
        || 'http://127.0.0.1:8080/locks',
    wait: 30, ttl: 30,  // seconds; the wait is for all repeats together
    mode: 'exclusive',  // shared, write, semaphore (with permits), member
    permits: undefined,
    owner: undefined,   // what other clients see
    durable: true,      // before the function begins; without, a lease counts
    session: 10,        // for the seconds of zk_lock_session_timeout at most
    headers: {},        // of each request: { Authorization: 'Bearer ...' }
};

export async function lock(name, options, work) {
    if (typeof options === 'function') {
        [options, work] = [{}, options];
    }
    const held = await acquire(name, options);
    try {
        const result = await work(held);
        if (!held.isHeld() && held.lost) {
            throw held.lost;
        }
        return result;
    } finally {
        await held.release();
    }
}

// A Held, to be released with held.release(); rejects with Taken, Unreachable
// or Refused.  All requests have the same key, so a repeat makes no second
// claim.
export async function acquire(name, options = {}) {
    if (['', '.', '..'].includes(name)) {
        throw new Refused(`"${name}" is no name of a lock`);
    }
    options = { ...DEFAULTS, ...options };
    const url = `${options.url.replace(/\/+$/, '')}/${
        encodeURIComponent(name.replaceAll('/', '%2F'))}`;
    const key = randomUUID();
    const end = now() + options.wait;

    for (;;) {
        const sent = now();
        let answer = await post(url, key, Math.max(0, end - sent), options);
        let held;
        if ([200, 201].includes(answer.status) && answer.header('lock-token')) {
            // where the lease may have begun before: renew, then count
            held = new Held(name, url, options, answer, sent);
            if ((answer.status === 201 && now() - sent < held.lease / 3)
                || await held.confirm()) {
                return held.start();
            }
            answer = held.answer;
        }
        if ((held || answer.mayChange(options.permits))
            && end - now() > answer.pause()) {
            await sleep(answer.pause());
            continue;
        }
        await held?.release();
        const Kind = !held && !answer.mayChange() ? Refused
            : [423, 429].includes(answer.status) ? Taken : Unreachable;
        throw new Kind(answer.detail(), answer.status);
    }
}

async function post(url, key, wait, options) {
    const { ttl, mode, permits, owner, durable } = options;
    const query = new URLSearchParams({
        wait: `${Math.floor(wait * 1000)}ms`,
        ttl: `${Math.floor(ttl * 1000)}ms`, mode,
        ...(owner !== undefined && { owner }),
        ...(permits !== undefined && { permits }),
        ...(durable && { durable: 1 }),
    });
    try {
        const response = await fetch(`${url}?${query}`, {
            method: 'POST', redirect: 'manual',
            headers: { ...options.headers, 'Idempotency-Key': key },
            signal: timeLimit(wait + PATIENCE),
        });
        return new Answer(response.status, (name) => response.headers.get(name),
                          await response.text());
    } catch (error) {
        return new Answer(0, () => null, String(error.cause ?? error));
    }
}

class Answer {
    constructor(status, header, body) {
        Object.assign(this, { status, header, body });
    }

    // whether a repeat may get another answer; a 409 may be of permits
    mayChange(permits) {
        return [0, 423, 429].includes(this.status) || this.status >= 500
            || (this.status === 409 && permits);
    }

    pause() {
        const value = this.header('retry-after') ?? '';
        return /^\d+$/.test(value) ? Number(value) : PAUSE;
    }

    json() {
        try {
            return JSON.parse(this.body) ?? {};
        } catch {
            return {};
        }
    }

    detail() {
        return this.status === 0 ? `no answer: ${this.body}`
            : this.json().detail ?? `status ${this.status}`;
    }
}

// A lock that was acquired: name, token, fencingToken (a BigInt), owner, mode,
// permits; ttl in seconds, as granted; signal; lost: a Lost, or undefined.
class Held {
    #url; #options; #sent; #released = false; #abort = new AbortController();
    #timers = new Map();

    constructor(name, url, options, answer, sent) {
        const { mode, permits } = options;
        const { owner, ttl_ms: ttl = options.ttl * 1000 } = answer.json();
        Object.assign(this, { name, owner, mode, permits, ttl: ttl / 1000 });
        this.token = answer.header('lock-token');
        this.fencingToken = BigInt(answer.header('lock-fencing-token') ?? 0);
        this.lease = options.durable ? this.ttl
            : Math.min(this.ttl, options.session);
        this.signal = this.#abort.signal;
        this.answer = answer;       // to the last renewal
        this.#url = url;
        this.#options = options;
        this.#sent = sent;          // when the last confirmed request was
    }

    // the seconds that the lock is held for without a renewal
    left() {
        return this.lost || this.#released ? 0
            : Math.max(0, this.#sent + this.lease - now());
    }

    isHeld() {
        if (this.left() === 0) {
            this.#lose("the lease is over by the client's clock");
        }
        return this.left() > 0;
    }

    // throws a Lost unless the lock is held
    check() {
        if (!this.isHeld()) {
            throw this.lost ?? new Lost('the lock was released');
        }
    }

    // Whether the gateway has confirmed that this call freed the lock.  An
    // unconfirmed release is no error: the lease ends by itself.
    async release() {
        this.#released = true;
        this.#timers.forEach(clearTimeout);
        const end = now() + RELEASE;
        for (;;) {
            const answer = await this.#call('DELETE', CONNECT);
            if (!answer.mayChange() || end - now() <= answer.pause()) {
                return answer.status === 204;
            }
            await sleep(answer.pause());
        }
    }

    start() {
        this.#at(this.lease / 3 - (now() - this.#sent), () => this.#keep());
        this.#watch();
        return this;
    }

    confirm() {
        this.#sent = now();         // not known to be held before this
        return this.#renew(this.lease / 3);
    }

    // renews at a third of the lease, and sooner after a failure
    async #keep() {
        const third = this.lease / 3;
        if (await this.#renew(Math.min(third, this.left()))) {
            this.#at(this.#sent + third - now(), () => this.#keep());
        } else if ([404, 410].includes(this.answer.status)) {
            this.#lose(this.answer.detail(), this.answer.status);
        } else {
            this.#at(Math.min(this.answer.pause(), third), () => this.#keep());
        }
    }

    #watch() {
        if (this.isHeld()) {
            this.#at(this.left(), () => this.#watch(), 'watch');
        }
    }

    // whether the lease counts from now; a lease that is over does not
    async #renew(timeout) {
        const sent = now();
        this.answer = await this.#call('PUT', timeout);
        if (this.answer.status !== 200 || this.left() === 0) {
            return false;
        }
        this.#sent = sent;
        return true;
    }

    #call(method, timeout) {
        const { request } = this.#url.startsWith('https:') ? https : http;
        return new Promise((done) => {
            const failed = (error) => done(
                new Answer(0, () => null, String(error)));
            request(this.#url, {
                method, agent: false,
                headers: { ...this.#options.headers, 'Lock-Token': this.token },
                signal: timeLimit(timeout),
            }, (response) => {
                text(response).then((body) => done(new Answer(
                    response.statusCode, (name) => response.headers[name],
                    body)), failed);
            }).on('error', failed).end();
        });
    }

    #at(seconds, task, name = 'keep') {
        if (!this.lost && !this.#released) {
            // setTimeout() takes 24 days
            this.#timers.set(name, setTimeout(task,
                                              Math.min(seconds, 1e6) * 1000));
        }
    }

    #lose(how, status) {
        if (!this.lost && !this.#released) {
            this.lost = new Lost(how, status);
            this.#timers.forEach(clearTimeout);
            this.#abort.abort(this.lost);
        }
    }
}
