/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/ui.h"
#include "vbrowse/content.h"
#include "vbrowse/job.h"
#include "client/errno_text.h"
#include "common/cli.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>

struct viewer {
    struct ui *ui;
    enum viewer_mode mode;
    bool is_version; /* `mode` can be changed */
    char *title;
    GPtrArray *lines;
    guint top;
    int left;
    char *wanted;    /* the text that was looked for, or NULL */
};

static void free_lines(struct viewer *viewer)
{
    g_clear_pointer(&viewer->lines, g_ptr_array_unref);
    g_clear_pointer(&viewer->title, g_free);
    viewer->lines = g_ptr_array_new_with_free_func(g_free);
    viewer->top = 0;
    viewer->left = 0;
}

/* ---- drawing --------------------------------------------------------------------------------------- */

/* As diff -u: the headings begin with the same signs as lines. */
static enum screen_style style_of(const struct viewer *viewer, const char *line, bool in_hunk)
{
    if (viewer->mode == VIEWER_CONTENT || !viewer->is_version)
        return SCREEN_PLAIN;
    if (*line == '@')
        return SCREEN_CYAN;
    if (!in_hunk)
        return SCREEN_BOLD;
    return *line == '+' ? SCREEN_GREEN : *line == '-' ? SCREEN_RED : SCREEN_PLAIN;
}

static const char *from_column(const char *line, int column)
{
    for (int passed = 0; *line && passed < column; line = g_utf8_next_char(line))
        passed += g_unichar_iswide(g_utf8_get_char(line)) ? 2 : 1;
    return line;
}

static void draw(void *data)
{
    struct viewer *viewer = data;
    struct screen_area title = {0, 0, 1, screen_columns()};
    struct screen_area area = {1, 0, screen_lines() - 2, screen_columns()};
    guint last = viewer->lines->len > (guint)area.height ? viewer->lines->len - (guint)area.height : 0;
    bool in_hunk = false;

    screen_clear();
    if (!screen_is_usable())
        return;
    viewer->top = MIN(viewer->top, last);
    screen_line(&title, 0, SCREEN_TITLE, viewer->title);
    for (guint i = 0; i < viewer->lines->len && i < viewer->top + (guint)area.height; i++) {
        const char *line = viewer->lines->pdata[i];

        in_hunk = in_hunk || *line == '@';
        if (i >= viewer->top)
            screen_line(&area, (int)(i - viewer->top), style_of(viewer, line, in_hunk),
                        from_column(line, viewer->left));
    }
    if (viewer->is_version)
        screen_message(SCREEN_PLAIN, "d next: content, diff to now, its own change  / find  r restore  arrows  q back");
    else
        screen_message(SCREEN_PLAIN, "arrows scroll  q back");
}

/* ---- a version --------------------------------------------------------------------------------------- */

static bool is_stopped(void)
{
    return screen_key(0) == SCREEN_KEY_ESCAPE || wb_cli_interrupted();
}

/* False after a message in the status line. */
static bool load_content(struct viewer *viewer, const struct browse_version *version)
{
    const struct browse *browse = viewer->ui->browse;
    _cleanup_moment_ struct wb_moment moment = {0};
    struct wb_error why = {""};
    bool whole = true;
    int r = browse_version_at(browse, version, &moment, &why);

    if (r < 0) {
        ui_fail(viewer->ui, "%s", why.text);
        return false;
    }
    screen_message(SCREEN_BOLD, "reading; Escape stops it");
    screen_show();
    r = content_read(browse->mount, &moment, is_stopped, viewer->lines, &whole);
    if (r < 0) {
        wb_moment_unknown(browse->mount, browse->version_path, version->when, r, &why);
        ui_fail(viewer->ui, "%s", r == -EINTR ? "stopped" : *why.text ? why.text : wb_errno_text(r));
        return false;
    }
    if (viewer->lines->len == 0)
        g_ptr_array_add(viewer->lines, g_strdup("(empty)"));
    if (!whole)
        g_ptr_array_add(viewer->lines, g_strdup("(only the beginning is shown; 'wayback show' prints all of it)"));
    return true;
}

/* By the tool that compares, so that both show the same. */
static bool load_diff(struct viewer *viewer, const struct browse_version *version)
{
    const struct browse *browse = viewer->ui->browse;
    g_autofree char *path = browse_path_of(browse, browse_current(browse));
    g_autofree char *top = browse_top(browse);
    char old[WB_WHEN_TEXT_MAX], new[WB_WHEN_TEXT_MAX];
    bool own = viewer->mode == VIEWER_CHANGE;
    const char *arguments[] = {"--color=never", "--no-pager", "--", path, old, own ? new : NULL, NULL};
    struct job job = {.label = "comparing", .tool = "vdiff", .call = "wayback diff", .arguments = arguments,
                      .directory = top, .errors = true};

    wb_when_print_epoch(own ? version->when - 1 : version->when, old);
    wb_when_print_epoch(version->when, new);
    job_run(&job);
    content_add_lines(viewer->lines, job.output->str, job.output->len);
    if (job.stopped)
        g_ptr_array_add(viewer->lines, g_strdup("(stopped)"));
    else if (job.cut)
        g_ptr_array_add(viewer->lines, g_strdup("(the rest is left out; 'wayback diff' prints all of it)"));
    else if (viewer->lines->len == 0)
        g_ptr_array_add(viewer->lines, g_strdup(own ? "(this change changed no content or attributes)"
                                                    : "(the same as now)"));
    job_clear(&job);
    return true;
}

static bool load(struct viewer *viewer)
{
    static const char *const names[] = {[VIEWER_CONTENT] = "content", [VIEWER_SINCE] = "diff to now",
                                        [VIEWER_CHANGE] = "diff to the version before"};
    const struct browse *browse = viewer->ui->browse;
    const struct browse_version *version = browse_version(browse);
    const struct browse_entry *entry = browse_current(browse);
    g_autofree char *name = NULL;
    char when[WB_WHEN_TEXT_MAX];

    if (!version || !entry) {
        ui_fail(viewer->ui, "there is no version to show");
        return false;
    }
    free_lines(viewer);
    name = wb_text_printable(entry->name);
    viewer->title = g_strdup_printf(" %s as of %s: %s", name, wb_text_time(version->when, false, when),
                                    names[viewer->mode]);
    if (viewer->mode != VIEWER_CONTENT)
        return load_diff(viewer, version);
    if (!version->exists) {
        ui_fail(viewer->ui, "it was gone after this change; an older version has content");
        return false;
    }
    return load_content(viewer, version);
}

/* The next of the modes that can be shown. */
static bool load_next(struct viewer *viewer)
{
    const struct browse_version *version = browse_version(viewer->ui->browse);
    bool directory = viewer->ui->browse->version_directory;

    do {
        viewer->mode = (viewer->mode + 1) % VIEWER_MODES;
    } while (viewer->mode == VIEWER_CONTENT && (directory || !version || !version->exists));
    return load(viewer);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* The first line at or after `from` with the text is the first one shown. */
static void find(struct viewer *viewer, guint from)
{
    for (guint i = from; i < viewer->lines->len; i++) {
        if (strstr(viewer->lines->pdata[i], viewer->wanted)) {
            viewer->top = i;
            return;
        }
    }
    screen_beep();
}

static void ask_and_find(struct viewer *viewer)
{
    char *text = screen_prompt("Find: ", viewer->wanted ? viewer->wanted : "", draw, viewer);

    if (!text)
        return;
    g_free(viewer->wanted);
    viewer->wanted = *text ? text : NULL;
    if (viewer->wanted)
        find(viewer, viewer->top);
    else
        g_free(text);
}

static void scroll(struct viewer *viewer, int64_t lines)
{
    int64_t top = (int64_t)viewer->top + lines;

    viewer->top = (guint)MAX(MIN(top, (int64_t)viewer->lines->len), 0);
}

/* False: the user leaves. */
static bool handle(struct viewer *viewer, int key)
{
    int page = MAX(screen_lines() - 3, 1);

    switch (key) {
    case SCREEN_KEY_UP: case 'k': scroll(viewer, -1); break;
    case SCREEN_KEY_DOWN: case 'j': case SCREEN_KEY_ENTER: scroll(viewer, 1); break;
    case SCREEN_KEY_PAGE_UP: case 'b': scroll(viewer, -page); break;
    case SCREEN_KEY_PAGE_DOWN: case ' ': scroll(viewer, page); break;
    case SCREEN_KEY_HOME: case 'g': scroll(viewer, -INT32_MAX); break;
    case SCREEN_KEY_END: case 'G': scroll(viewer, INT32_MAX); break;
    case SCREEN_KEY_LEFT: case 'h': viewer->left = MAX(viewer->left - 8, 0); break;
    case SCREEN_KEY_RIGHT: case 'l': viewer->left = MIN(viewer->left + 8, 4096); break;
    case '/': ask_and_find(viewer); break;
    case 'n':
        if (viewer->wanted)
            find(viewer, viewer->top + 1);
        break;
    case 'd': return !viewer->is_version || load_next(viewer);
    case 'r':
        if (!viewer->is_version)
            break;
        viewer->ui->browse->version_chosen = true;
        action_restore(viewer->ui, true);
        return false;
    case 'q': case SCREEN_KEY_ESCAPE: case SCREEN_KEY_BACKSPACE: return false;
    default: break;
    }
    return true;
}

static void run(struct viewer *viewer)
{
    do {
        draw(viewer);
        screen_show();
    } while (!wb_cli_interrupted() && handle(viewer, screen_key(-1)));
    g_clear_pointer(&viewer->lines, g_ptr_array_unref);
    g_clear_pointer(&viewer->title, g_free);
    g_clear_pointer(&viewer->wanted, g_free);
}

void viewer_run(struct ui *ui, enum viewer_mode mode)
{
    struct viewer viewer = {.ui = ui, .mode = mode, .is_version = true};

    if (load(&viewer))
        run(&viewer);
    g_clear_pointer(&viewer.lines, g_ptr_array_unref);
    g_clear_pointer(&viewer.title, g_free);
}

void viewer_show(struct ui *ui, const char *title, GPtrArray *lines)
{
    struct viewer viewer = {.ui = ui, .title = g_strdup(title), .lines = lines};

    run(&viewer);
}
