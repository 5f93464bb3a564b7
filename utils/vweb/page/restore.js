/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Restoring: the plan is shown, with all that is lost; then it is done, and can be undone. */

import {element, post, shown, timeText} from "./api.js";

const WORDS = {restore: "restore", rename: "rename back", link: "link", copy: "copy", rewrite: "rewrite", set: "set attributes", break: "break link", remove: "remove"};
const LISTED = 100;

function list(title, actions, top, kind) {
    if (actions.length === 0)
        return null;
    const name = action => {
        const path = shown(action, "path");
        return path.startsWith(`${top}/`) ? path.slice(top.length + 1) : path;
    };
    return element("section", {class: kind}, element("h3", {}, title),
        element("ul", {}, ...actions.slice(0, LISTED).map(action => element("li", {}, `${WORDS[action.action]} `, element("bdi", {}, name(action)))),
                actions.length > LISTED ? element("li", {}, `and ${actions.length - LISTED} more`) : null));
}

function describe(plan, top) {
    const {counts} = plan, lost = plan.actions.filter(action => ["remove", "rewrite"].includes(action.action) || action.replaces);
    const replaced = counts.rewrite + lost.filter(action => action.replaces).length;
    const parts = [replaced ? `${replaced} ${replaced === 1 ? "file gets" : "files get"} other content` : "",
                   counts.remove ? `${counts.remove} ${counts.remove === 1 ? "name that did" : "names that did"} not exist then ${counts.remove === 1 ? "is" : "are"} removed` : ""];
    const made = [list(`Lost, but kept in the history: ${parts.filter(part => part).join(", ")}`, lost, top, "lost"),
                  lost.length ? null : element("p", {class: "safe"}, "Nothing that is there now is lost."),
                  list(lost.length ? "Also done:" : "This is done:", plan.actions.filter(action => !lost.includes(action)), top, "done")];
    for (const error of plan.errors ?? (plan.error ? [plan.error] : []))
        made.push(element("p", {class: "wrong"}, `${error.path ? `${error.path}: ` : ""}${error.message}`));
    return made.filter(part => part);
}

export class Restorer {
    constructor(page) {
        this.page = page;
        this.dialog = document.getElementById("question");
        this.undo = null;
    }

    /* Resolves to whether the user agreed. */
    ask(title, parts, verb) {
        document.getElementById("question-title").textContent = title;
        document.getElementById("question-text").replaceChildren(...parts);
        document.getElementById("question-yes").textContent = verb;
        this.dialog.returnValue = "no";
        this.dialog.showModal();
        document.getElementById("question-no").focus();
        return new Promise(done => this.dialog.addEventListener("close", () => done(this.dialog.returnValue === "yes"), {once: true}));
    }

    async run(path, epoch, isUndo = false) {
        const {session} = this.page, name = path.shown || session.path;
        if (session.read_only) {
            this.page.say(`Nothing can be restored: ${session.why_read_only}.`, true);
            return;
        }
        const plan = await post("plan", {path, epoch});
        const errors = plan.errors ?? (plan.error ? [plan.error] : []);
        if (!plan.actions?.length) {
            this.page.say(errors.length ? errors[0].message : `${name}: nothing to do; it has not changed since then.`, errors.length > 0);
            return;
        }
        const title = `${isUndo ? "Undo: " : ""}Restore ${name} as of ${timeText(epoch)}?`;
        if (!await this.ask(title, describe(plan, session.path), plan.counts.remove ? "Restore and remove" : "Restore")) {
            this.page.say("Nothing was changed.");
            return;
        }
        const done = await post("restore", {path, epoch});
        const wrong = done.error ? ` Not all of it was done: ${done.error.message}` : "";
        const count = Object.values(done.counts ?? {}).reduce((sum, one) => sum + one, 0);
        this.undo = count > 0 && done.before ? {path, epoch: done.before.epoch} : this.undo;
        this.page.say(`${name}: ${count} ${count === 1 ? "change" : "changes"} made.${wrong}`, wrong !== "", count > 0 ? [
            element("button", {id: "undo", "aria-keyshortcuts": "u", onclick: () => this.runUndo()}, "Undo"),
            done.undo ? element("code", {title: "The same on the command line"}, done.undo) : null] : []);
        await this.page.reload();
    }

    async runUndo() {
        if (!this.undo) {
            this.page.say("This page has restored nothing yet; ‘wayback undo’ knows earlier restores.");
            return;
        }
        await this.run(this.undo.path, this.undo.epoch, true).catch(this.page.fail);
    }
}
