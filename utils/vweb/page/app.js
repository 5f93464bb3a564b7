/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The page: the time that is shown, and the parts that show it. */

import {before, element, epochOf, get, hasToken, nanoseconds, Path, seconds, shown, timeText} from "./api.js";
import {Details} from "./details.js";
import {bucketFor, Plot} from "./plot.js";
import {Restorer} from "./restore.js";
import {Tree} from "./tree.js";

const STEPS = 1000, NANO = 1000000000n;
const by = id => document.getElementById(id);

class Page {
    constructor() {
        this.epoch = null; /* null: now */
        this.fail = error => {
            if (error.name !== "AbortError")
                this.say(error.message, true);
        };
        this.tree = new Tree(by("tree"), node => this.select(node), this.fail);
        this.details = new Details(by("details"), this);
        this.restorer = new Restorer(this);
        this.plot = new Plot(by("plot"), by("legend"), share => this.setShare(share), program => this.details.setProgram(program));
    }

    /* ---- messages ---- */

    say(text, isWrong = false, more = []) {
        const message = by("message");
        message.replaceChildren(text, " ", ...more.filter(part => part));
        message.classList.toggle("wrong", isWrong);
        message.hidden = false;
    }

    /* ---- times ---- */

    now() {
        return this.session.now.epoch;
    }

    range() {
        return {since: epochOf(this.since), until: epochOf(this.until)};
    }

    share() {
        if (this.epoch === null)
            return 1;
        return Math.min(1, Math.max(0, Number(nanoseconds(this.epoch) - this.since) / Number(this.until - this.since)));
    }

    setShare(share) {
        const at = this.since + (this.until - this.since) * BigInt(Math.round(share * 1e6)) / 1000000n;
        this.setTime(share >= 1 ? null : epochOf(at));
    }

    showTime() {
        const text = this.epoch === null ? "now" : timeText(this.epoch);
        by("moment").value = text;
        by("slider").value = Math.round(this.share() * STEPS);
        by("slider").setAttribute("aria-valuetext", text);
        document.body.classList.toggle("past", this.epoch !== null);
        this.plot.mark(this.share());
    }

    /* Shows the tree at a time; null: now. */
    setTime(epoch) {
        if (epoch !== null && nanoseconds(epoch) < nanoseconds(this.session.began.epoch))
            epoch = this.session.began.epoch;
        this.epoch = epoch;
        this.showTime();
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.showTree().catch(this.fail), 60);
    }

    async showTree() {
        await this.tree.show(this.epoch);
        by("since").textContent = this.tree.since ? `since ${timeText(this.tree.since.epoch)}` : "";
    }

    async goEarlier() {
        const reply = await get("log", {path: new Path(), until: this.epoch, limit: 1});
        if (reply.changes.length && nanoseconds(reply.changes[0].epoch) > nanoseconds(this.session.began.epoch))
            this.goTo(before(reply.changes[0].epoch));
        else
            this.say("There is no earlier change.");
    }

    async goLater() {
        const reply = this.epoch === null ? {next: null} : await get("next", {path: new Path(), epoch: this.epoch});
        if (!reply.next) {
            this.goTo(null);
            return;
        }
        this.goTo(reply.next.epoch);
    }

    /* Also if it is not in the range of the plot. */
    goTo(epoch) {
        this.setTime(epoch);
        if (epoch !== null && nanoseconds(epoch) < this.since) {
            by("range").value = "0";
            this.showRange().catch(this.fail);
        }
    }

    async showRange() {
        this.session = await get("session");
        const began = nanoseconds(this.session.began.epoch), wanted = BigInt(by("range").value) * NANO;
        this.until = nanoseconds(this.session.now.epoch);
        this.since = wanted === 0n || this.until - wanted < began ? began : this.until - wanted;
        if (this.until - this.since < NANO)
            this.until = this.since + NANO;
        this.showTime();
        const [changes, snapshots] = await Promise.all([
            get("changes", {path: new Path(), ...this.range(), bucket: bucketFor(Number(this.until - this.since) / 1e9)}),
            get("snapshots").catch(() => ({snapshots: []}))]);
        this.plot.snapshots = snapshots.snapshots;
        this.plot.show(changes, Number(this.since) / 1e9, Number(this.until) / 1e9);
    }

    /* ---- names ---- */

    async select(node) {
        try {
            await this.details.show(node);
            /* On a narrow screen the details are below. */
            if (matchMedia("(max-width: 760px)").matches)
                by("details").scrollIntoView({block: "start"});
        } catch (error) {
            this.fail(error);
        }
    }

    async restore(path, epoch) {
        await this.restorer.run(path, epoch).catch(this.fail);
    }

    async reload() {
        await this.showRange();
        await this.showTree();
        if (this.tree.selectedItem)
            await this.details.show(this.tree.selected);
    }

    /* ---- the beginning ---- */

    showSession() {
        const {session} = this;
        document.title = `${shown(session, "path")} – Wayback`;
        by("path").replaceChildren(element("bdi", {}, shown(session, "path")));
        by("rights").replaceChildren(element("span", {class: session.is_root ? "badge root" : "badge", title: "The page has the rights of this user"}, session.user),
            session.read_only ? element("span", {class: "badge", title: session.why_read_only}, "read-only") : "");
    }

    listen() {
        const slider = by("slider");
        slider.max = STEPS;
        slider.addEventListener("input", () => this.setShare(slider.value / STEPS));
        by("earlier").addEventListener("click", () => this.goEarlier().catch(this.fail));
        by("later").addEventListener("click", () => this.goLater().catch(this.fail));
        by("now").addEventListener("click", () => this.reloadNow());
        by("range").addEventListener("change", () => this.showRange().catch(this.fail));
        by("help").addEventListener("click", () => by("keys").showModal());
        by("go").addEventListener("submit", event => {
            event.preventDefault();
            const text = by("time").value.trim();
            if (text === "" || text === "now")
                this.reloadNow();
            else
                get("time", {text}).then(reply => this.goTo(reply.epoch)).catch(this.fail);
        });
        document.addEventListener("keydown", event => this.onKey(event));
    }

    reloadNow() {
        this.epoch = null;
        this.reload().catch(this.fail);
    }

    onKey(event) {
        if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]") ||
            event.target.matches("input:not([type=range]), select"))
            return;
        const keys = {"[": () => this.goEarlier(), "]": () => this.goLater(), n: () => this.reloadNow(), t: () => by("time").focus(),
                      v: () => this.details.setView("content"), d: () => this.details.setView("since"), c: () => this.details.setView("change"),
                      r: () => this.details.node && this.details.restore(), u: () => this.restorer.runUndo(), "?": () => by("keys").showModal()};
        if (!(event.key in keys))
            return;
        event.preventDefault();
        Promise.resolve(keys[event.key]()).catch(this.fail);
    }

    async begin() {
        if (!hasToken) {
            this.say("The token is missing: open the address that ‘wayback web’ printed.", true);
            return;
        }
        this.session = await get("session");
        this.showSession();
        document.querySelector("main").hidden = false;
        const age = seconds(this.session.now.epoch) - seconds(this.session.began.epoch);
        by("range").value = age < 7 * 86400 ? "0" : "604800";
        this.listen();
        await Promise.all([this.showRange(), this.showTree()]);
        const item = this.tree.items().find(one => this.session.select !== undefined && one.dataset.key === new Path().below(
            {name: this.session.select, name_bytes: this.session.select_bytes}).encoded);
        if (item) {
            this.tree.focus(item, true);
            this.tree.select(item);
        }
        document.body.dataset.ready = "yes";
    }
}

const page = new Page();
page.begin().catch(page.fail);
