/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The versions of the selected name, and the content, the difference or the changes of one of them. */

import {ageText, before, element, get, getImage, post, shown, sizeText, timeText} from "./api.js";

const VIEWS = {content: "Content", since: "Difference to now", change: "This change"};

export class Details {
    constructor(root, page) {
        this.root = root;
        this.page = page;
        this.view = "content";
        this.program = null;
    }

    async show(node) {
        this.node = node;
        this.version = null;
        this.versionRows = [];
        const {entry, path, isDirectory, here} = node;
        this.list = element("div", {class: "versions", role: "listbox", "aria-label": isDirectory ? "Changes in it" : "Versions"});
        this.list.addEventListener("keydown", event => this.onKey(event));
        this.pane = element("div", {class: "pane", tabindex: "0", role: "region", "aria-label": "Content"});
        this.tabs = element("div", {class: "tabs", role: "group", "aria-label": "View"});
        this.root.replaceChildren(
            element("div", {class: "heading"},
                element("h2", {}, element("bdi", {}, path.shown || "/")),
                element("span", {class: "buttons"},
                    entry.type === "file" ? element("button", {id: "download", onclick: () => this.download()}, "Download") : null,
                    element("button", {id: "restore", class: "strong", onclick: () => this.restore(), "aria-keyshortcuts": "r"}, "Restore…"))),
            this.list, this.tabs, this.pane);
        const reply = await get("versions", {path, directory: isDirectory, epoch: here.gone ? here.epoch : null, gone: here.gone, limit: 300});
        if (this.node !== node)
            return;
        this.fillVersions(reply);
        await this.choose(this.start(), false);
    }

    /* The version that the tree shows: the newest one up to its time. */
    start() {
        const until = this.node.entry.at?.epoch ?? this.node.here.epoch;
        const index = this.versions.findIndex(version => !until || version.epoch <= until);
        return index < 0 ? this.versions.length - 1 : index;
    }

    fillVersions(reply) {
        this.versions = reply.versions;
        this.versionRows = this.versions.map((version, i) => {
            const row = element("div", {role: "option", tabindex: "-1", class: version.exists ? "version" : "version gone", "aria-selected": "false",
                                        title: version.command ? `${shown(version, "command")} (${version.pid})` : null},
                element("span", {class: "number"}, version.number || ""),
                element("span", {class: "age"}, ageText(version.epoch, this.page.now())),
                element("time", {}, timeText(version.epoch)),
                element("span", {class: "size"}, version.size),
                element("span", {class: "what"}, element("b", {}, version.gap ? "nothing was recorded" : shown(version, "operation")),
                        version.name !== undefined ? element("bdi", {}, ` ${shown(version, "name")}`) : null,
                        version.user ? ` ${version.user} ` : null, version.command ? element("bdi", {class: "command"}, shown(version, "command")) : null));
            row.addEventListener("click", () => this.choose(i, true));
            return row;
        });
        this.list.replaceChildren(...this.versionRows, ...(reply.has_more ? [element("p", {class: "hint"}, "older ones: wayback list")] : []));
        if (!this.versionRows.length)
            this.list.replaceChildren(element("p", {class: "hint"}, "It has not changed since the history began."));
    }

    async choose(index, focus) {
        this.index = index;
        this.version = this.versions[index] ?? null;
        this.versionRows.forEach((row, i) => {
            row.setAttribute("aria-selected", String(i === index));
            row.tabIndex = i === index ? 0 : -1;
        });
        if (focus)
            this.versionRows[index]?.focus();
        else
            this.list.scrollTop = Math.max(0, (this.versionRows[index]?.offsetTop ?? 0) - this.list.clientHeight / 2);
        await this.showView();
    }

    onKey(event) {
        const last = this.versionRows.length - 1;
        const to = {ArrowDown: this.index + 1, ArrowUp: this.index - 1, Home: 0, End: last,
                    PageDown: this.index + 8, PageUp: this.index - 8}[event.key];
        if (to === undefined)
            return;
        this.choose(Math.min(last, Math.max(0, to)), true).catch(this.page.fail);
        event.preventDefault();
    }

    setView(view) {
        if (!this.node || !(view in VIEWS))
            return;
        this.view = view;
        this.showView().catch(this.page.fail);
    }

    async showView() {
        const asked = this.asked = {};
        this.tabs.replaceChildren(...(this.node.isDirectory ? [] : Object.entries(VIEWS).map(([view, label]) =>
            element("button", {"aria-pressed": String(view === this.view), "aria-keyshortcuts": view === "content" ? "v" : view === "since" ? "d" : "c",
                               onclick: () => this.setView(view)}, label))));
        this.pane.setAttribute("aria-busy", "true");
        const made = await (this.node.isDirectory ? this.log() : this.view === "content" ? this.content() : this.difference()).catch(error =>
            [element("p", {class: "hint"}, error.message)]);
        if (asked !== this.asked)
            return;
        for (const image of this.pane.querySelectorAll("img"))
            URL.revokeObjectURL(image.src);
        this.pane.replaceChildren(...made);
        this.pane.removeAttribute("aria-busy");
        this.pane.scrollTop = 0;
    }

    /* The state that a request is about. */
    state(version = this.version) {
        return version ? {epoch: version.epoch, number: version.number || null} : {epoch: this.node.entry.at?.epoch ?? this.node.here.epoch};
    }

    async image(items) {
        return element("img", {src: await getImage({path: this.node.path, ...items}), alt: `${this.node.path.shown}`});
    }

    async content() {
        if (this.version && !this.version.exists)
            return [element("p", {class: "hint"}, "It was gone after this change; an older version has content.")];
        const reply = await get("content", {path: this.node.path, ...this.state()});
        if (reply.kind === "image")
            return [element("figure", {}, await this.image(this.state()), element("figcaption", {}, `${reply.image}, ${sizeText(reply.size)}`))];
        const made = [];
        if (reply.kind === "symlink")
            made.push(element("p", {class: "hint"}, "symbolic link to"));
        if (reply.text !== undefined)
            made.push(element("pre", {class: reply.kind}, reply.text === "" ? "(empty)" : reply.text));
        else
            made.push(element("p", {class: "hint"}, reply.kind));
        if (!reply.whole)
            made.push(element("p", {class: "hint"}, `Only the beginning is shown, of ${sizeText(reply.size)}; Download has all of it.`));
        return made;
    }

    async difference() {
        const version = this.version, own = this.view === "change";
        if (!version)
            return [element("p", {class: "hint"}, "There is no version to compare.")];
        const older = this.versions[this.index + 1];
        const items = own ? {old_epoch: version.before?.epoch ?? before(version.epoch), old_number: older?.number || null,
                             new_epoch: version.epoch, new_number: version.number || null}
                          : {old_epoch: version.epoch, old_number: version.number || null};
        const reply = await get("diff", {path: this.node.path, ...items});
        if (reply.kind === "same")
            return [element("p", {class: "hint"}, own ? "This change did not change the content." : "The same as now.")];
        if (reply.kind === "text")
            return this.lines(reply);
        if (reply.kind === "image")
            return [await this.images(reply, items)];
        return [element("p", {class: "hint"}, `${reply.old.kind}, ${sizeText(reply.old.size)} → ${reply.new.kind}, ${sizeText(reply.new.size)}; they are different`)];
    }

    lines(reply) {
        const body = element("tbody");
        for (const line of reply.lines) {
            if (line.begins && body.childElementCount)
                body.append(element("tr", {class: "skip"}, element("td", {colspan: 4}, "⋯")));
            body.append(element("tr", {class: line.kind === "+" ? "added" : line.kind === "-" ? "removed" : null},
                element("td", {class: "line"}, line.old ?? ""), element("td", {class: "line"}, line.new ?? ""),
                element("td", {class: "sign"}, line.kind), element("td", {class: "text"}, line.text + (line.cut ? " …" : ""))));
        }
        return [element("p", {class: "sum"}, element("span", {class: "plus"}, `+${reply.added}`), " ", element("span", {class: "minus"}, `−${reply.removed}`),
                        reply.exact ? "" : " (more than needed)", reply.whole ? "" : "; the rest is left out"),
                element("table", {class: "diff"}, body)];
    }

    /* Beside each other, and one over the other with a border that moves. */
    async images(reply, items) {
        const old = {epoch: items.old_epoch, number: items.old_number}, next = items.new_epoch ? {epoch: items.new_epoch, number: items.new_number} : {};
        const figure = async (title, has, state) => element("figure", {}, has.image ? await this.image(state) : element("p", {class: "hint"}, "nothing"),
            element("figcaption", {}, `${title}: ${has.image ? sizeText(has.size) : "not there"}`));
        const beside = element("div", {class: "images"}, await figure("before", reply.old, old), await figure("after", reply.new, next));
        if (!reply.old.image || !reply.new.image)
            return beside;
        const top = await this.image(next), border = element("input", {type: "range", min: 0, max: 100, value: 50, "aria-label": "Border between before and after"});
        const move = () => { top.style.clipPath = `inset(0 0 0 ${border.value}%)`; };
        border.addEventListener("input", move);
        move();
        return element("div", {}, beside, element("figure", {class: "wipe"}, element("div", {class: "stack"}, await this.image(old), top), border,
                                                  element("figcaption", {}, "left: before, right: after")));
    }

    /* Of a directory: all changes below it in the time that the plot shows. */
    async log() {
        const {since, until} = this.page.range();
        const reply = await get("log", {path: this.node.path, since, until, program: this.program, limit: 300});
        const rows = reply.changes.map(change => element("tr", {}, element("td", {}, timeText(change.epoch)), element("td", {}, change.op),
            element("td", {}, element("bdi", {}, shown(change, "path")), change.other ? element("bdi", {}, ` → ${shown(change, "other")}`) : null),
            element("td", {class: "command"}, change.user ? `${change.user} ` : "", change.command ? element("bdi", {}, shown(change, "command")) : null)));
        const title = `Changes below it${this.program ? ` by ${this.program}` : ""}, in the time of the plot`;
        return rows.length ? [element("h3", {}, title), element("table", {class: "log"}, element("tbody", {}, ...rows)),
                              reply.has_more ? element("p", {class: "hint"}, "older ones: wayback log") : ""]
                           : [element("h3", {}, title), element("p", {class: "hint"}, "none")];
    }

    setProgram(program) {
        this.program = program;
        if (this.node?.isDirectory)
            this.showView().catch(this.page.fail);
    }

    async download() {
        try {
            const version = this.version?.exists ? this.state() : this.state(null);
            const items = Object.fromEntries(Object.entries(version).filter(([, value]) => value !== null).map(([key, value]) => [key, String(value)]));
            const {url} = await post("ticket", {path: this.node.path, ...items});
            const link = element("a", {href: url, download: ""});
            document.body.append(link);
            link.click();
            link.remove();
        } catch (error) {
            this.page.fail(error);
        }
    }

    /* The chosen version with the attributes that were set after it; else the state that the tree shows. */
    async restore() {
        const {entry, here, path, isDirectory, place} = this.node;
        let epoch = here.epoch;
        if (!isDirectory && this.version)
            epoch = this.version.until?.epoch ?? this.version.epoch;
        else if (isDirectory && place.findGone)
            epoch = (await get("list", {path, epoch: here.epoch, gone: true})).at.epoch;
        else if (entry.at)
            epoch = entry.at.epoch;
        if (!epoch)
            this.page.say("Choose a time on the slider, or a version, to restore.", true);
        else
            await this.page.restore(path, epoch);
    }
}
