/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The names of the directory as a tree (role "tree"), at the time that is shown. */

import {element, get, Path, shown, sizeText} from "./api.js";

const MARKS = {new: "+", changed: "~", deleted: "D", moved: ">"};
const WORDS = {new: "new", changed: "changed", deleted: "deleted", moved: "moved away"};

export class Tree {
    constructor(root, onSelect, onError) {
        this.root = root;
        this.onSelect = onSelect;
        this.onError = onError;
        this.open = new Set();
        this.epoch = null;
        root.addEventListener("keydown", event => this.onKey(event));
    }

    /* Reads everything that is open again, as of `epoch` (null: now). A newer call ends an older one. */
    async show(epoch) {
        this.epoch = epoch;
        this.abort?.abort();
        const {signal} = this.abort = new AbortController();
        const selected = this.selected?.path.encoded, focused = this.focusedKey;
        try {
            const list = document.createDocumentFragment();
            this.since = (await this.fill(list, {path: new Path(), epoch, gone: false}, 1, signal)).since;
            if (signal.aborted)
                return;
            const hadFocus = this.root.contains(document.activeElement);
            this.root.replaceChildren(list);
            const items = this.items();
            const item = items.find(one => one.dataset.key === (focused ?? selected)) ?? items[0];
            if (item)
                this.focus(item, hadFocus);
            this.markSelected(items.find(one => one.dataset.key === selected));
        } catch (error) {
            if (error.name !== "AbortError")
                throw error;
        }
    }

    /* `place`: a directory: its path, the time at which it is read (null: now), and whether it is gone. */
    async fill(into, place, level, signal) {
        const reply = await get("list", {path: place.path, epoch: place.epoch, gone: place.findGone}, signal);
        const here = {path: place.path, epoch: reply.at?.epoch ?? null, gone: place.gone || reply.gone};
        const entries = reply.entries.sort((a, b) => (b.type === "directory") - (a.type === "directory"));
        for (const entry of entries) {
            const item = this.item(entry, here, level);
            into.append(item);
            if (this.open.has(item.dataset.key))
                await this.expand(item, signal).catch(error => {
                    if (error.name === "AbortError")
                        throw error;
                });
        }
        if (entries.length === 0)
            into.append(element("li", {role: "none", class: "empty"}, "empty"));
        if (reply.incomplete || reply.warning)
            into.append(element("li", {role: "none", class: "empty"}, reply.warning ?? "not all names are shown"));
        return reply;
    }

    item(entry, here, level) {
        const path = here.path.below(entry), isDirectory = entry.type === "directory", ended = entry.at !== null;
        const row = element("div", {class: `row ${entry.status}`},
            element("span", {class: "twist", "aria-hidden": "true"}, isDirectory ? "▸" : ""),
            element("span", {class: `mark ${entry.status}`, title: WORDS[entry.status], "aria-hidden": "true"}, MARKS[entry.status] ?? ""),
            element("bdi", {class: "name"}, shown(entry, "name") + (isDirectory ? "/" : entry.type === "link" ? " →" : "")),
            element("span", {class: "size"}, entry.type === "file" ? sizeText(entry.size) : ""));
        const item = element("li", {role: "treeitem", tabindex: "-1", "aria-level": level, "aria-selected": "false", "data-key": path.encoded,
                                    "aria-expanded": isDirectory ? "false" : null,
                                    "aria-label": `${shown(entry, "name")}${isDirectory ? ", directory" : ""}${WORDS[entry.status] ? `, ${WORDS[entry.status]}` : ""}`}, row);
        item.node = {entry, path, isDirectory, level, here,
                     place: {path, epoch: here.epoch, gone: here.gone || ended, findGone: ended}};
        row.addEventListener("click", event => {
            this.focus(item, true);
            if (isDirectory && (event.target.classList.contains("twist") || item === this.selectedItem))
                this.toggle(item);
            else
                this.select(item);
        });
        return item;
    }

    async expand(item, signal) {
        const group = element("ul", {role: "group"});
        item.querySelector(":scope > ul")?.remove();
        await this.fill(group, item.node.place, item.node.level + 1, signal);
        item.append(group);
        item.setAttribute("aria-expanded", "true");
        this.open.add(item.dataset.key);
    }

    collapse(item) {
        item.querySelector(":scope > ul")?.remove();
        item.setAttribute("aria-expanded", "false");
        this.open.delete(item.dataset.key);
    }

    async toggle(item) {
        if (item.getAttribute("aria-expanded") === "true")
            this.collapse(item);
        else
            await this.expand(item).catch(error => this.onError(error));
    }

    items() {
        return [...this.root.querySelectorAll("[role=treeitem]")];
    }

    focus(item, really) {
        for (const one of this.items())
            one.tabIndex = one === item ? 0 : -1;
        this.focusedKey = item.dataset.key;
        if (really)
            item.focus();
    }

    markSelected(item) {
        for (const one of this.items())
            one.setAttribute("aria-selected", String(one === item));
        this.selectedItem = item;
        if (item)
            this.selected = item.node;
    }

    select(item) {
        this.markSelected(item);
        this.onSelect(item.node);
    }

    onKey(event) {
        const item = event.target.closest("[role=treeitem]"), items = this.items(), at = items.indexOf(item);
        const isOpen = item?.getAttribute("aria-expanded") === "true";
        if (!item || event.ctrlKey || event.altKey || event.metaKey)
            return;
        const moves = {ArrowDown: items[at + 1], ArrowUp: items[at - 1], Home: items[0], End: items.at(-1)};
        if (event.key in moves) {
            if (moves[event.key])
                this.focus(moves[event.key], true);
        } else if (event.key === "ArrowRight" && item.node.isDirectory) {
            if (isOpen && items[at + 1]?.node.level > item.node.level)
                this.focus(items[at + 1], true);
            else if (!isOpen)
                this.toggle(item);
        } else if (event.key === "ArrowLeft") {
            const parent = item.parentElement.closest("[role=treeitem]");
            if (isOpen)
                this.collapse(item);
            else if (parent)
                this.focus(parent, true);
        } else if (event.key === "Enter" || event.key === " ") {
            this.select(item);
        } else {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    }
}
