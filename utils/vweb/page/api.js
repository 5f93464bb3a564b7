/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests to the server, and the forms of paths and times. */

const KEY = "wayback-token";

/* The token is in the address once, behind "#"; then it is kept for this tab, and is not in the history of the browser. */
function takeToken() {
    const found = /^#token=([0-9a-f]+)$/.exec(location.hash);
    if (found) {
        sessionStorage.setItem(KEY, found[1]);
        history.replaceState(null, "", location.pathname);
    }
    return sessionStorage.getItem(KEY) || "";
}

const token = takeToken();
export const hasToken = token !== "";

export class Failure extends Error {
    constructor(kind, message) {
        super(message);
        this.kind = kind;
    }
}

async function send(url, options) {
    let reply;
    try {
        reply = await fetch(url, {...options, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer",
                                  headers: {...options.headers, "X-Wayback-Token": token}});
    } catch (error) {
        if (error.name === "AbortError")
            throw error;
        throw new Failure("gone", "The server has ended. Start ‘wayback web’ again, and open its new address.");
    }
    if (reply.ok)
        return reply;
    let error = {kind: "failed", message: `the server replied with ${reply.status}`};
    try {
        error = (await reply.json()).error || error;
    } catch { /* not JSON */ }
    throw new Failure(error.kind, error.message);
}

function query(items) {
    return Object.entries(items).filter(([, value]) => value !== undefined && value !== null && value !== false)
        .map(([key, value]) => `${key}=${value instanceof Path ? value.encoded : encodeURIComponent(value === true ? 1 : value)}`)
        .join("&");
}

/* Asks again while the daemon prepares the list of changes. */
export async function get(name, items = {}, signal) {
    for (let wait = 100;; wait = Math.min(2 * wait, 2000)) {
        try {
            return await (await send(`/api/v1/${name}?${query(items)}`, {signal})).json();
        } catch (error) {
            if (error.kind !== "preparing")
                throw error;
            await new Promise(done => setTimeout(done, wait));
        }
    }
}

export async function getImage(items) {
    return URL.createObjectURL(await (await send(`/api/v1/image?${query(items)}`, {})).blob());
}

export async function post(name, {path, ...items}) {
    const body = JSON.stringify({...items, path: "", path_bytes: path.base64});
    return (await send(`/api/v1/${name}`, {method: "POST", body, headers: {"Content-Type": "application/json"}})).json();
}

/* ---- paths -------------------------------------------------------------------------------------- */

function bytesOf(object, key) {
    const encoded = object[`${key}_bytes`];
    return encoded === undefined ? new TextEncoder().encode(object[key])
                                 : Uint8Array.from(atob(encoded), letter => letter.charCodeAt(0));
}

/* Names are bytes, and not always UTF-8. `shown` is for people. */
export class Path {
    constructor(bytes = new Uint8Array(), shown = "") {
        this.bytes = bytes;
        this.shown = shown;
    }

    below(entry) {
        const name = bytesOf(entry, "name");
        const slash = this.bytes.length ? [...this.bytes, 47] : [];
        return new Path(Uint8Array.from([...slash, ...name]), (this.shown ? `${this.shown}/` : "") + shown(entry, "name"));
    }

    get encoded() {
        return Array.from(this.bytes, byte => /[A-Za-z0-9._~/-]/.test(String.fromCharCode(byte))
            ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`).join("");
    }

    get base64() {
        return btoa(String.fromCharCode(...this.bytes));
    }
}

export function shown(object, key) {
    return object[`${key}_shown`] ?? object[key];
}

/* ---- times: epochs are strings with nine decimals --------------------------------------------------- */

export const nanoseconds = epoch => BigInt(epoch.replace(".", ""));
export const seconds = epoch => Number(epoch);
export function epochOf(ns) {
    return `${ns / 1000000000n}.${String(ns % 1000000000n).padStart(9, "0")}`;
}
export const before = epoch => epochOf(nanoseconds(epoch) - 1n);

const full = new Intl.DateTimeFormat("sv-SE", {dateStyle: "short", timeStyle: "medium"});
export const timeText = epoch => full.format(new Date(seconds(epoch) * 1000));

export function ageText(epoch, now) {
    const age = Math.max(0, seconds(now) - seconds(epoch));
    for (const [unit, size] of [["y", 31536000], ["w", 604800], ["d", 86400], ["h", 3600], ["m", 60]])
        if (age >= size)
            return `${Math.floor(age / size)}${unit}`;
    return `${Math.floor(age)}s`;
}

export function sizeText(bytes) {
    let unit = 0;
    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    return unit === 0 ? `${bytes} B` : `${bytes.toPrecision(bytes < 10 ? 2 : 3)} ${" KMGTP"[unit]}iB`;
}

/* ---- elements ---------------------------------------------------------------------------------------- */

/* Text is always inserted as text. */
export function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (key.startsWith("on"))
            made.addEventListener(key.slice(2), value);
        else if (value === true)
            made.setAttribute(key, "");
        else if (value !== undefined && value !== null && value !== false)
            made.setAttribute(key, value);
    }
    made.append(...children.filter(child => child !== null && child !== undefined));
    return made;
}
