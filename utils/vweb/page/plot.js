/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Changes per hour and program: stacked bars above the slider, and a legend with the sums. */

import {element, seconds, shown} from "./api.js";

const HEIGHT = 96, FOOT = 16, COLOURS = 6;
const NAMES = {60: "minute", 900: "quarter of an hour", 3600: "hour", 14400: "4 hours", 86400: "day", 604800: "week"};

/* The width of bars for so many seconds: an hour for up to a week. */
export function bucketFor(range) {
    if (range <= 3 * 3600)
        return 60;
    if (range <= 8 * 86400)
        return 3600;
    if (range <= 40 * 86400)
        return 14400;
    return range <= 900 * 86400 ? 86400 : 604800;
}

function svg(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes))
        made.setAttribute(key, value);
    made.append(...children);
    return made;
}

/* The rows that have a colour of their own; all others are one. */
function rowsOf(changes) {
    const rows = changes.programs.slice(0, COLOURS).map(row => ({...row, label: shown(row, "program")}));
    const rest = [...changes.programs.slice(COLOURS), changes.others];
    const count = rest.reduce((sum, row) => sum + row.count, 0);
    if (count > 0)
        rows.push({label: "others", isOthers: true, count,
                   buckets: changes.others.buckets.map((_, i) => rest.reduce((sum, row) => sum + row.buckets[i], 0))});
    return rows;
}

function tickText(time, range) {
    const date = new Date(time * 1000);
    const clock = date.toLocaleTimeString("sv-SE", {hour: "2-digit", minute: "2-digit"}), day = date.toLocaleDateString("sv-SE");
    if (range <= 4 * 86400)
        return range <= 86400 ? clock : `${day.slice(5)} ${clock}`;
    return range < 300 * 86400 ? day.slice(5) : day;
}

export class Plot {
    constructor(root, legend, onTime, onProgram) {
        this.root = root;
        this.legend = legend;
        this.onProgram = onProgram;
        this.program = null;
        this.snapshots = [];
        root.addEventListener("click", event => {
            const box = root.getBoundingClientRect();
            onTime(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
        });
        new ResizeObserver(() => this.draw()).observe(root);
    }

    show(changes, since, until) {
        Object.assign(this, {changes, since, until, rows: rowsOf(changes)});
        this.draw();
        this.drawLegend();
    }

    x(time) {
        return (time - this.since) / (this.until - this.since) * this.root.clientWidth;
    }

    drawBars(into, most) {
        const {bucket} = this.changes, begin = seconds(this.changes.begin.epoch), scale = (HEIGHT - FOOT - 14) / most;
        this.rows[0]?.buckets.forEach((_, i) => {
            const left = Math.max(0, this.x(begin + i * bucket)), right = Math.min(this.root.clientWidth, this.x(begin + (i + 1) * bucket));
            let y = HEIGHT - FOOT, lines = [];
            this.rows.forEach((row, number) => {
                const height = row.buckets[i] * scale;
                if (height <= 0)
                    return;
                y -= height;
                lines.push(`${row.label}: ${row.buckets[i]}`);
                into.append(svg("rect", {x: left.toFixed(1), y: y.toFixed(1), height: Math.max(height, 0.5).toFixed(1), "data-count": row.buckets[i],
                                         width: Math.max(1, right - left - (right - left > 4 ? 1 : 0)).toFixed(1), class: row.isOthers ? "others" : `c${number}`}));
            });
            if (lines.length) {
                const over = svg("rect", {x: left.toFixed(1), y: 0, width: Math.max(1, right - left).toFixed(1), height: HEIGHT - FOOT, class: "over"});
                over.append(svg("title", {}, `${new Date((begin + i * bucket) * 1000).toLocaleString("sv-SE")}\n${lines.join("\n")}`));
                into.append(over);
            }
        });
    }

    drawScale(into, most) {
        const width = this.root.clientWidth, range = this.until - this.since, count = Math.max(2, Math.floor(width / 110));
        into.append(svg("line", {x1: 0, x2: width, y1: HEIGHT - FOOT, y2: HEIGHT - FOOT, class: "axis"}));
        into.append(svg("text", {x: 2, y: 10}, `${most} per ${NAMES[this.changes.bucket]}`));
        for (let i = 0; i <= count; i++) {
            const anchor = i === 0 ? "start" : i === count ? "end" : "middle";
            into.append(svg("text", {x: (i * width / count).toFixed(1), y: HEIGHT - 4, "text-anchor": anchor},
                            tickText(this.since + i * range / count, range)));
        }
        for (const snapshot of this.snapshots) {
            const x = this.x(seconds(snapshot.epoch));
            if (x >= 0 && x <= width)
                into.append(svg("path", {d: `M${x - 4} 14h8l-4 6z`, class: "snapshot"}, svg("title", {}, shown(snapshot, "name"))));
        }
    }

    draw() {
        if (!this.changes)
            return;
        const sums = (this.rows[0]?.buckets ?? [0]).map((_, i) => this.rows.reduce((sum, row) => sum + row.buckets[i], 0));
        const most = Math.max(1, ...sums);
        const into = svg("svg", {width: this.root.clientWidth, height: HEIGHT, "aria-hidden": "true"});
        this.drawBars(into, most);
        this.drawScale(into, most);
        this.marker = svg("line", {y1: 0, y2: HEIGHT - FOOT, class: "marker"});
        into.append(this.marker);
        this.root.replaceChildren(into);
        this.root.setAttribute("aria-label", `${this.changes.count} changes, at most ${most} per ${NAMES[this.changes.bucket]}; ` +
                               this.rows.map(row => `${row.label} ${row.count}`).join(", "));
        this.mark(this.marked ?? 1);
    }

    mark(share) {
        this.marked = share;
        const x = Math.min(this.root.clientWidth - 1, share * this.root.clientWidth);
        this.marker?.setAttribute("x1", x);
        this.marker?.setAttribute("x2", x);
    }

    drawLegend() {
        this.legend.replaceChildren(element("span", {class: "sum"}, `${this.changes.count}${this.changes.complete ? "" : "+"} changes`),
            ...this.rows.map((row, number) => {
                const label = [element("i", {class: row.isOthers ? "others" : `c${number}`}), `${row.label} `, element("b", {}, String(row.count))];
                if (row.isOthers)
                    return element("span", {class: "chip"}, ...label);
                const button = element("button", {class: "chip", "aria-pressed": String(this.program === row.program), title: "List its changes"}, ...label);
                button.addEventListener("click", () => {
                    this.program = this.program === row.program ? null : row.program;
                    for (const other of this.legend.querySelectorAll("button"))
                        other.setAttribute("aria-pressed", String(other === button && this.program !== null));
                    this.onProgram(this.program);
                });
                return button;
            }));
    }
}
