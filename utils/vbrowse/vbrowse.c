/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/ui.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/text.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * vbrowse: a tree with all that ever was in it, on a terminal. It reads through the same library as the other tools,
 * and has them restore, undo, compare and search.
 */

/* While the daemon builds the list of changes. */
#define WAIT_MS 100

static char *time_option;

static const GOptionEntry options[] = {
    {"time", 't', 0, G_OPTION_ARG_STRING, &time_option, "Begin with the state at TIME", "TIME"},
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vbrowse",
    .arguments = "[PATH]",
    .summary = "Shows a directory on the terminal with all names that it ever had, the versions of each, their\n"
               "content and differences, and restores them. The key ? lists the keys. Without PATH: this directory.",
    .examples = "  vbrowse                      this directory\n"
                "  vbrowse ~/work/report.txt    its directory, with the cursor on the file\n"
                "  vbrowse -t yesterday src     as it was at 0:00 yesterday\n",
    .paths_max = 1,
};

static const char *const help_lines[] = {
    "Marks: + new, ~ changed (since today 0:00, or since the time that is shown),",
    "       D deleted, > moved away, * marked by you",
    "arrows, PgUp, PgDn, Home, End   move (also j, k, g, G)",
    "Enter, Right     open a directory; the versions of a file; the content of a",
    "                 version; a directory as at a version",
    "Left, Backspace  the directory above; from the versions back to the entries",
    "Tab              the other pane",
    "d                differences of a version: to now, to the version before",
    "Space, a         mark or unmark; mark all deleted names, or all at a time",
    "r                restore what is marked, or under the cursor, to the version or",
    "                 time chosen; a deleted name: as it was before its deletion",
    "R                the same in another place",
    "u                undo the last restore",
    "t                the directory at a time: 14:03, yesterday, 2h, a snapshot",
    "T                the directory at the time of the version under the cursor",
    "n                back to now",
    "/                only names with a text (or a pattern: *.c)",
    "c                only what commands with a text changed",
    "s                search the content of all versions in this directory",
    "x                show names that moved away, too; or no deleted names",
    "Escape           stop reading; else remove marks, results, filters",
    "Ctrl-L, F5: read everything again; q: quit",
};

/* ---- messages ------------------------------------------------------------------------------------------ */

static void say(struct ui *ui, bool is_error, const char *format, va_list arguments)
{
    g_autofree char *bytes = g_strdup_vprintf(format, arguments);

    g_free(ui->status);
    ui->status = wb_text_printable(bytes);
    ui->is_error = is_error;
}

void ui_say(struct ui *ui, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(ui, false, format, arguments);
    va_end(arguments);
}

void ui_fail(struct ui *ui, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(ui, true, format, arguments);
    va_end(arguments);
}

static void take_errors(struct ui *ui)
{
    g_autofree char *text = screen_take_error();

    if (ui->browse->error)
        ui_fail(ui, "%s", ui->browse->error);
    else if (text)
        ui_fail(ui, "%s", text);
    g_clear_pointer(&ui->browse->error, g_free);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void move_cursor(struct ui *ui, int64_t steps)
{
    if (ui->focus == UI_ENTRIES) {
        browse_move(ui->browse, steps);
        ui->version_top = 0;
    } else {
        browse_version_move(ui->browse, steps);
    }
}

static void focus(struct ui *ui, enum ui_focus wanted)
{
    if (wanted == UI_VERSIONS && !browse_current(ui->browse))
        return;
    ui->focus = wanted;
    /* The cursor is on a version from now on, also when the user goes back. */
    if (wanted == UI_VERSIONS)
        ui->browse->version_chosen = true;
}

/* The directory at the time of the version under the cursor; of a file: that which has it. */
static void go_to_version(struct ui *ui, bool into)
{
    const struct browse_version *version = browse_version(ui->browse);
    const struct browse_entry *entry = browse_current(ui->browse);
    g_autofree char *path = NULL;

    if (!version || !entry)
        return;
    path = into ? browse_path_of(ui->browse, entry) : g_strdup(browse_level(ui->browse)->path);
    if (browse_go(ui->browse, path, version->when))
        ui->focus = UI_ENTRIES;
}

static void open_entry(struct ui *ui)
{
    if (ui->focus == UI_VERSIONS) {
        if (ui->browse->version_directory)
            go_to_version(ui, true);
        else
            viewer_run(ui, VIEWER_CONTENT);
    } else if (!browse_enter(ui->browse)) {
        focus(ui, UI_VERSIONS);
    }
}

static void go_back(struct ui *ui)
{
    if (ui->focus == UI_VERSIONS)
        focus(ui, UI_ENTRIES);
    else if (ui->browse->search)
        browse_reload(ui->browse);
    else if (!browse_up(ui->browse))
        ui_say(ui, "this is the root of the mount");
}

static void mark(struct ui *ui)
{
    struct browse_entry *entry = browse_current(ui->browse);

    if (!entry)
        return;
    entry->tagged = !entry->tagged;
    ui->focus = UI_ENTRIES;
    browse_move(ui->browse, 1);
}

/* All that is shown and can be restored as it is: deleted names, or everything if a time is shown. */
static void mark_all(struct ui *ui)
{
    const struct browse *browse = ui->browse;
    guint marked = 0;

    for (guint i = 0; i < browse->shown->len; i++) {
        struct browse_entry *entry = browse->shown->pdata[i];

        if (browse_time_of(browse, entry) == 0)
            continue;
        entry->tagged = true;
        marked++;
    }
    if (marked == 0)
        ui_fail(ui, "no name here was deleted; choose a version (Tab) or a time (t) first");
}

static bool remove_marks(const struct browse *browse)
{
    bool any = false;

    for (guint i = 0; i < browse->entries->len; i++) {
        struct browse_entry *entry = browse->entries->pdata[i];

        any |= entry->tagged;
        entry->tagged = false;
    }
    return any;
}

/* One thing after the other, the nearest first. */
static void escape(struct ui *ui)
{
    struct browse *browse = ui->browse;

    if (browse->names || browse->commands || browse->changes ||
        (browse->version_walk && browse->versions_wanted == G_MAXUINT)) {
        browse_stop(browse);
        ui_say(ui, "stopped");
    } else if (ui->focus == UI_VERSIONS) {
        focus(ui, UI_ENTRIES);
    } else if (remove_marks(browse)) {
        return;
    } else if (browse->search) {
        browse_reload(browse);
    } else if (browse->name_filter) {
        g_clear_pointer(&browse->name_filter, g_free);
        browse_entries_show(browse);
    } else if (browse->command_filter) {
        g_clear_pointer(&browse->command_filter, g_free);
        browse_commands_begin(browse, NULL);
    }
}

static void show_help(struct ui *ui)
{
    GPtrArray *lines = g_ptr_array_new_with_free_func(g_free);

    for (size_t i = 0; i < G_N_ELEMENTS(help_lines); i++)
        g_ptr_array_add(lines, g_strdup(help_lines[i]));
    viewer_show(ui, " keys of wayback browse", lines);
}

/* Of the version under the cursor. The newest one of a present file is the same as now: its own change. */
static void show_diff(struct ui *ui)
{
    const struct browse_version *version = browse_version(ui->browse);

    if (version && version->exists && ui->browse->version > 0)
        viewer_run(ui, VIEWER_SINCE);
    else
        viewer_run(ui, VIEWER_CHANGE);
}

static bool handle_motion(struct ui *ui, int key)
{
    switch (key) {
    case SCREEN_KEY_UP: case 'k': move_cursor(ui, -1); break;
    case SCREEN_KEY_DOWN: case 'j': move_cursor(ui, 1); break;
    case SCREEN_KEY_PAGE_UP: move_cursor(ui, -ui_page(ui)); break;
    case SCREEN_KEY_PAGE_DOWN: move_cursor(ui, ui_page(ui)); break;
    case SCREEN_KEY_HOME: case 'g': move_cursor(ui, -INT32_MAX); break;
    case SCREEN_KEY_END: case 'G': move_cursor(ui, INT32_MAX); break;
    case SCREEN_KEY_ENTER: case SCREEN_KEY_RIGHT: case 'l': open_entry(ui); break;
    case SCREEN_KEY_LEFT: case 'h': case SCREEN_KEY_BACKSPACE: go_back(ui); break;
    case '\t': focus(ui, ui->focus == UI_ENTRIES ? UI_VERSIONS : UI_ENTRIES); break;
    default: return false;
    }
    return true;
}

/* The cursor in the versions is a choice, also of a list that was read again. */
static void keep_focus(struct ui *ui)
{
    if (ui->focus == UI_VERSIONS && !browse_current(ui->browse) && !ui->browse->names)
        ui->focus = UI_ENTRIES;
    if (ui->focus == UI_VERSIONS)
        ui->browse->version_chosen = true;
}

static void handle(struct ui *ui, int key)
{
    if (key == SCREEN_KEY_RESIZE)
        return;
    keep_focus(ui);
    g_clear_pointer(&ui->status, g_free);
    if (handle_motion(ui, key))
        return;
    switch (key) {
    case ' ': mark(ui); break;
    case 'a': mark_all(ui); break;
    case 'd': show_diff(ui); break;
    case 'r': action_restore(ui, false); break;
    case 'R': action_restore_elsewhere(ui); break;
    case 'u': action_undo(ui); break;
    case 't': search_time(ui); break;
    case 'T': go_to_version(ui, false); break;
    case 'n': search_go_to(ui, ""); break;
    case '/': search_name(ui); break;
    case 'c': search_command(ui); break;
    case 's': search_content(ui); break;
    case 'x':
        ui->browse->gone = (ui->browse->gone + 1) % BROWSE_GONE_MODES;
        browse_entries_show(ui->browse);
        break;
    case SCREEN_KEY_ESCAPE: escape(ui); break;
    case SCREEN_KEY_REFRESH: browse_reload(ui->browse); break;
    case '?': show_help(ui); break;
    case 'q': ui->quit = true; break;
    default: break;
    }
}

/* For work that is no list and no other program. */
static bool is_stopped(void)
{
    screen_message(SCREEN_BOLD, "reading; Escape stops it");
    screen_show();
    return screen_key(0) == SCREEN_KEY_ESCAPE || wb_cli_interrupted();
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void run(struct ui *ui)
{
    enum browse_progress progress = BROWSE_MORE;
    int key;

    while (!ui->quit && !wb_cli_interrupted()) {
        take_errors(ui);
        ui_draw(ui);
        screen_show();
        key = screen_key(progress == BROWSE_MORE ? 0 : progress == BROWSE_WAITING ? WAIT_MS : -1);
        if (key != SCREEN_KEY_NONE)
            handle(ui, key);
        progress = browse_work(ui->browse);
    }
}

/* Begins in the directory of the place, or in that which has it. False after an error line. */
static bool begin(struct ui *ui)
{
    struct browse *browse = ui->browse;
    struct wb_place *place = browse->place;
    const char *name;
    g_autofree char *parent = wb_path_parent(place->path, &name);
    struct stat st;

    if (wb_place_stat(place, &st) == 0 && (st.st_ino & WB_PAST_INODE)) {
        wb_cli_fail(place->given, "is a past state; name the present path, and give the time with --time");
        return false;
    }
    if (wb_place_stat(place, &st) == 0 && S_ISDIR(st.st_mode) && browse_go(browse, place->path, WB_WHEN_PRESENT))
        return true;
    g_clear_pointer(&browse->error, g_free);
    if (!browse_go(browse, parent, WB_WHEN_PRESENT)) {
        wb_cli_fail(place->given, "%s", browse->error);
        return false;
    }
    g_free(browse->wanted);
    browse->wanted = g_strdup(name);
    return true;
}

static int check(void)
{
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return -1;
    return wb_cli_usage("needs a terminal for input and output; '%s' prints the versions of a file, '%s' the names",
                        wb_cli_tool("vstat"), wb_cli_tool("vfind"));
}

int main(int argc, char **argv)
{
    struct ui ui = {0};
    struct wb_place *place;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check();
    if (r >= 0)
        return r;
    wb_cli_stopped("%s", "");
    place = wb_place_find(argc > 1 ? argv[1] : ".", WB_MOUNT_READ);
    if (!place)
        return wb_cli_end();
    ui.browse = browse_new(place);
    ui.browse->stopped = is_stopped;
    ui.restores = g_ptr_array_new_with_free_func(action_restored_free);
    r = begin(&ui) ? -1 : wb_cli_end();
    if (r < 0 && time_option && !search_go_to(&ui, time_option)) {
        wb_cli_fail(place->given, "--time: %s", ui.status);
        r = WB_EXIT_USAGE;
    }
    if (r < 0)
        r = screen_begin() ?: -1;
    if (r < 0) {
        run(&ui);
        screen_end();
        r = wb_cli_end();
    }
    g_free(ui.status);
    g_ptr_array_unref(ui.restores);
    browse_free(ui.browse);
    return r;
}
