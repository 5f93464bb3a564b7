/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/ui.h"
#include "common/text.h"
#include <string.h>
#include <sys/stat.h>

/* From this width on, the two panes are side by side. */
#define WIDE 120
/* Widths of the columns after the name. */
#define SIZE_COLUMNS 9
#define TIME_COLUMNS 16
#define AGE_COLUMNS 4
/* Of a message. */
#define STATUS_LINES 4

struct layout {
    struct screen_area entries, rule, versions;
};

static struct layout lay_out(void)
{
    int lines = screen_lines() - 3, columns = screen_columns();
    int upper = (lines - 1) * 3 / 5, left = columns * 9 / 20;

    if (columns >= WIDE)
        return (struct layout){{1, 0, lines, left}, {1, left + 1, 1, columns - left - 1},
                               {2, left + 1, lines - 1, columns - left - 1}};
    return (struct layout){{1, 0, upper, columns}, {1 + upper, 0, 1, columns},
                           {2 + upper, 0, lines - upper - 1, columns}};
}

int ui_page(const struct ui *ui)
{
    struct layout layout = lay_out();

    return MAX(1, (ui->focus == UI_ENTRIES ? layout.entries.height : layout.versions.height) - 1);
}

/* The first row, so that the cursor is in the pane. */
static guint scrolled(guint top, guint cursor, int height)
{
    if (cursor < top)
        return cursor;
    return cursor >= top + (guint)height ? cursor - (guint)height + 1 : top;
}

/* `text` filled up with blanks to `width` columns, or cut; negative: aligned to the right. */
static void append_cell(GString *row, const char *text, int width)
{
    g_autofree char *cut = wb_text_cut(text, (unsigned)ABS(width));
    int blanks = ABS(width) - (int)wb_text_width(cut);

    if (width < 0)
        g_string_append_printf(row, "%*s", blanks, "");
    g_string_append(row, cut);
    if (width > 0)
        g_string_append_printf(row, "%*s", blanks, "");
    g_string_append_c(row, ' ');
}

/* ---- entries ------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "/" : S_ISLNK(mode) ? "@" : S_ISREG(mode) ? "" : "=";
}

/* Minutes are exact enough for a list; the versions have seconds. */
static void append_time(GString *row, int64_t now, int64_t when, bool narrow)
{
    char text[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];

    if (!narrow) {
        wb_text_time(when, false, text);
        text[MIN(strlen(text), TIME_COLUMNS)] = '\0';
        append_cell(row, when ? text : "", TIME_COLUMNS);
    }
    append_cell(row, when ? wb_text_age(now - when, age) : "", -AGE_COLUMNS);
}

static void draw_entry(const struct ui *ui, const struct screen_area *area, int line, guint index, int64_t now)
{
    static const char letters[] = {[BROWSE_SAME] = ' ', [BROWSE_NEW] = '+', [BROWSE_CHANGED] = '~',
                                   [BROWSE_DELETED] = 'D', [BROWSE_MOVED] = '>'};
    static const enum screen_style styles[] = {[BROWSE_SAME] = SCREEN_PLAIN, [BROWSE_NEW] = SCREEN_GREEN,
                                               [BROWSE_CHANGED] = SCREEN_CYAN, [BROWSE_DELETED] = SCREEN_RED,
                                               [BROWSE_MOVED] = SCREEN_YELLOW};
    const struct browse_entry *entry = ui->browse->shown->pdata[index];
    enum browse_mark mark = browse_mark_of(ui->browse, entry);
    g_autofree char *printable = wb_text_printable(entry->name);
    g_autofree char *name = g_strconcat(printable, kind_of(entry->mode), NULL);
    g_autoptr(GString) row = g_string_new(NULL);
    bool narrow = area->width < 60;
    int rest = SIZE_COLUMNS + 1 + AGE_COLUMNS + 1 + (narrow ? 0 : TIME_COLUMNS + 1);
    enum screen_style style = S_ISDIR(entry->mode) && mark == BROWSE_SAME ? SCREEN_BOLD : styles[mark];
    char size[WB_TEXT_SIZE_MAX];

    g_string_append_printf(row, "%c%c ", entry->tagged ? '*' : ' ', letters[mark]);
    append_cell(row, name, MAX(area->width - 4 - rest, 8));
    append_cell(row, S_ISDIR(entry->mode) ? "" : wb_text_size(entry->size, size), -SIZE_COLUMNS);
    append_time(row, now, entry->time, narrow);
    if (index == ui->browse->cursor)
        style = ui->focus == UI_ENTRIES ? SCREEN_CURSOR : SCREEN_BESIDE;
    screen_line(area, line, style, row->str);
}

static void draw_entries(struct ui *ui, const struct screen_area *area, int64_t now)
{
    const struct browse *browse = ui->browse;

    ui->entry_top = scrolled(ui->entry_top, browse->cursor, area->height);
    for (int line = 0; line < area->height; line++) {
        guint index = ui->entry_top + (guint)line;

        if (index < browse->shown->len)
            draw_entry(ui, area, line, index, now);
    }
    if (browse->shown->len == 0 && !browse->names)
        screen_text(area, 0, 3, SCREEN_FAINT,
                    browse->entries->len > 0 ? "(nothing passes the filter; Escape removes it)" : "(empty)");
}

/* ---- versions ------------------------------------------------------------------------------------ */

static void draw_version(const struct ui *ui, const struct screen_area *area, int line, guint index, int64_t now)
{
    const struct browse *browse = ui->browse;
    const struct browse_version *version = browse->versions->pdata[index];
    g_autofree char *number = version->number ? g_strdup_printf("%u", version->number) : g_strdup("-");
    g_autoptr(GString) row = g_string_new(NULL);
    enum screen_style style = version->exists ? SCREEN_PLAIN : SCREEN_RED;
    char time[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];

    append_cell(row, number, -4);
    append_cell(row, wb_text_age(now - version->when, age), -AGE_COLUMNS);
    if (area->width >= 60)
        append_cell(row, wb_text_time(version->when, false, time), 19);
    if (!browse->version_directory)
        append_cell(row, version->size, -SIZE_COLUMNS);
    append_cell(row, version->operation, MAX(10, (int)MIN(wb_text_width(version->operation), 22)));
    if (browse->version_directory)
        append_cell(row, version->name, MAX(12, (int)MIN(wb_text_width(version->name), 30)));
    g_string_append(row, version->who);
    if (index == browse->version && ui->focus == UI_VERSIONS)
        style = SCREEN_CURSOR;
    else if (index == browse->version && browse->version_chosen)
        style = SCREEN_BESIDE;
    screen_line(area, line, style, row->str);
}

static void draw_versions(struct ui *ui, const struct screen_area *area, int64_t now)
{
    const struct browse *browse = ui->browse;

    ui->version_top = scrolled(ui->version_top, browse->version, area->height);
    for (int line = 0; line < area->height; line++) {
        guint index = ui->version_top + (guint)line;

        if (index < browse->versions->len)
            draw_version(ui, area, line, index, now);
    }
    if (browse->versions->len == 0 && !browse->version_walk && browse_current(browse))
        screen_text(area, 0, 3, SCREEN_FAINT,
                    browse->command_filter ? "(no change by such a command)"
                                           : "(no change recorded since the history began)");
}

static void draw_rule(const struct ui *ui, const struct screen_area *area)
{
    const struct browse *browse = ui->browse;
    const struct browse_entry *entry = browse_current(browse);
    g_autofree char *name = entry ? wb_text_printable(entry->name) : g_strdup("");
    g_autofree char *cut = wb_text_cut(name, (unsigned)MAX(area->width - 30, 8));
    const char *noun = browse->version_directory ? "changes" : "versions";
    g_autofree char *text = entry ? g_strdup_printf("%s of %s (%u%s)", noun, cut, browse->versions->len,
                                                    browse->version_walk ? "+" : "")
                                  : g_strdup("");

    screen_rule(area, 0, ui->focus == UI_VERSIONS ? SCREEN_BOLD : SCREEN_PLAIN, text);
}

/* ---- title and status ---------------------------------------------------------------------------- */

static void append_filter(GString *text, const char *label, const char *filter)
{
    g_autofree char *printable = filter ? wb_text_printable(filter) : NULL;

    if (printable)
        g_string_append_printf(text, "  [%s: %s]", label, printable);
}

static void draw_title(const struct ui *ui)
{
    const struct browse *browse = ui->browse;
    const struct browse_level *level = browse_level(browse);
    struct screen_area area = {0, 0, 1, screen_columns()};
    g_autofree char *path = browse_absolute(browse, level->path);
    g_autofree char *printable = wb_text_printable(path);
    g_autoptr(GString) text = g_string_new("");
    g_autoptr(GString) end = g_string_new("");
    char when[WB_WHEN_TEXT_MAX];
    int room;

    if (level->gone)
        g_string_append_printf(end, "  deleted; as of %s", wb_text_time(level->moment, false, when));
    else if (level->moment != WB_WHEN_PRESENT)
        g_string_append_printf(end, "  as of %s", wb_text_time(level->moment, false, when));
    append_filter(end, "name", browse->name_filter);
    append_filter(end, "command", browse->command_filter);
    append_filter(end, "containing", browse->search);
    if (browse->gone == BROWSE_GONE_NONE)
        g_string_append(end, "  [deleted: hidden]");
    else if (browse->gone == BROWSE_GONE_ALL)
        g_string_append(end, "  [moved: shown]");
    if (browse->incomplete)
        g_string_append(end, "  (incomplete)");
    room = MAX(area.width - 9 - (int)wb_text_width(end->str), 10);
    g_string_append(text, " wayback ");
    /* The end of a long path says more than its beginning. */
    for (const char *at = printable; *at; at = g_utf8_next_char(at)) {
        if ((int)wb_text_width(at) <= room - (at > printable)) {
            g_string_append_printf(text, "%s%s", at > printable ? "\xe2\x80\xa6" : "", at);
            break;
        }
    }
    g_string_append(text, end->str);
    screen_line(&area, 0, SCREEN_TITLE, text->str);
}

/* Without a message: the work that is under way, or the meaning of the marks. */
static char *status_text(const struct ui *ui)
{
    const struct browse *browse = ui->browse;
    guint tagged = 0;
    char since[WB_WHEN_TEXT_MAX];

    if (browse->names)
        return g_strdup_printf("reading: %u names; Escape stops it", browse->entries->len);
    for (guint i = 0; i < browse->entries->len; i++)
        tagged += ((const struct browse_entry *)browse->entries->pdata[i])->tagged;
    if (tagged > 0)
        return g_strdup_printf("%u marked; r restores, R restores elsewhere, Escape removes the marks", tagged);
    if (browse->commands)
        return g_strdup("looking for changes by the command; Escape stops it");
    if (browse->changes)
        return g_strdup("looking for changes; Escape stops it");
    if (browse->search)
        return g_strdup("Escape goes back to the directory");
    return g_strdup_printf("+ new, ~ changed since %s; D deleted%s", wb_text_time(browse->since, false, since),
                           browse->gone == BROWSE_GONE_ALL ? ", > moved away" : "");
}

/* `text` in lines of at most `width` columns, divided between words; a longer word is cut when it is shown. */
static GPtrArray *wrap(const char *text, int width)
{
    GPtrArray *lines = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    GString *line = g_string_new(NULL);

    for (char **word = words; *word; word++) {
        if (line->len > 0 && (int)(wb_text_width(line->str) + 1 + wb_text_width(*word)) > width) {
            g_ptr_array_add(lines, g_strdup(line->str));
            g_string_truncate(line, 0);
        }
        g_string_append_printf(line, "%s%s", line->len > 0 ? " " : "", *word);
    }
    g_ptr_array_add(lines, g_string_free(line, FALSE));
    return lines;
}

/* A long message covers a part of the pane above. */
static void draw_status(const struct ui *ui)
{
    g_autofree char *text = ui->status ? g_strdup(ui->status) : status_text(ui);
    g_autoptr(GPtrArray) rows = wrap(text, screen_columns());
    int height = ui->status ? MIN((int)rows->len, STATUS_LINES) : 1;
    struct screen_area area = {screen_lines() - 1 - height, 0, height, screen_columns()};
    enum screen_style style = !ui->status ? SCREEN_FAINT : ui->is_error ? SCREEN_RED : SCREEN_BOLD;

    for (int i = 0; i < height; i++)
        screen_line(&area, i, style, ui->status ? (const char *)rows->pdata[i] : text);
    if (ui->focus == UI_ENTRIES)
        screen_message(SCREEN_PLAIN, "Enter open  Tab versions  Space mark  r restore  t time  / name  ? help  q quit");
    else
        screen_message(SCREEN_PLAIN, "Enter show  d diff  r restore  R elsewhere  T go to this time  Tab back  ? help");
}

void ui_draw(void *data)
{
    struct ui *ui = data;
    struct layout layout = lay_out();
    int64_t now = wb_mount_now(ui->browse->mount);

    screen_clear();
    if (!screen_is_usable())
        return;
    draw_title(ui);
    draw_entries(ui, &layout.entries, now);
    draw_rule(ui, &layout.rule);
    draw_versions(ui, &layout.versions, now);
    draw_status(ui);
    if (ui->focus == UI_ENTRIES)
        screen_point(&layout.entries, (int)(ui->browse->cursor - ui->entry_top));
    else
        screen_point(&layout.versions, (int)(ui->browse->version - ui->version_top));
}
