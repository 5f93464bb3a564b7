/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include "common/progress.h"
#include "client/path.h"
#include "content/states.h"
#include <errno.h>

/*
 * --content: of each file, the first and the last state that have the text. The search goes from the newest state
 * backward, and then from the oldest one forward, so that states between the two are not read.
 */

/* Whether --since and --until leave the state. */
static bool is_in_range(const struct find *find, const struct wb_state *state)
{
    const struct find_match *match = &find->match;

    return (!match->until || state->when <= match->until) &&
           (!match->since || state->end == 0 || state->end > match->since);
}

/*
 * The states of the name. The list of changes of a path has those of all directories that had the path, beginning with
 * the last of them. 0 or -errno.
 */
static int read_states(struct find *find, const struct entry *entry, const struct span *newest)
{
    const struct source *source = newest->source;
    g_autofree char *path = wb_path_join(source->path, entry->name);

    return wb_states_read(find->states, path, source->moment == INT64_MAX ? 0 : source->moment,
                          source->present ? 0 : source->end);
}

/* Whether the state has the text; notes in `content` if that is not known. */
static int look(struct find *find, unsigned index, struct find_content *content)
{
    const struct wb_state *state = wb_states_get(find->states, index);
    int has;

    if (!is_in_range(find, state))
        return 0;
    if (state->gap) {
        content->unknown++;
        content->error = content->error ? content->error : -EIO;
    }
    has = wb_states_has(find->states, index);
    if (has < 0 && has != -ENOENT && has != -EINTR) {
        content->unknown++;
        content->error = has;
    }
    return MAX(has, 0);
}

/* The first and the last state that have the text; false: none is known to have it. */
static bool search_ends(struct find *find, struct find_content *content)
{
    unsigned count = wb_states_count(find->states), last = 0, first;

    while (last < count && !look(find, last, content))
        last++;
    if (last == count)
        return false;
    first = count - 1;
    while (first > last && !look(find, first, content))
        first--;
    /* An interrupted search ends with any of them. */
    if (wb_cli_interrupted())
        return false;
    content->last = wb_states_get(find->states, last);
    content->first = wb_states_get(find->states, first);
    return true;
}

static bool has_now(const struct find_content *content, const struct span *newest)
{
    return content->last->end == 0 && newest->last == 0;
}

/* Each period in which all states have the text, the newest first. */
static void each_period(struct find *find, GString *out, const char *path, const struct span *newest,
                        struct find_content *content)
{
    unsigned count = wb_states_count(find->states);

    for (unsigned i = 0; i <= count; i++) {
        const struct wb_state *state = i < count ? wb_states_get(find->states, i) : NULL;
        bool has = state && look(find, i, content);

        if (wb_cli_interrupted())
            return;
        if (content->last && (!has || content->first->when != state->end)) {
            find_show_content(find, out, path, newest, content);
            content->index++;
            content->last = NULL;
        }
        if (has) {
            content->last = content->last ? content->last : state;
            content->first = state;
            content->now = has_now(content, newest);
        }
    }
}

static const struct span *newest_span(const struct entry *entry)
{
    for (guint i = 0; i < entry->spans->len; i++) {
        const struct span *span = entry->spans->pdata[i];

        if (!span->replaced)
            return span;
    }
    return NULL;
}

void find_content(struct find *find, GString *out, const char *path, const struct entry *entry)
{
    const struct span *newest = newest_span(entry);
    struct find_content content = {0};
    int r;

    /* With another type now, it may have been a file before. */
    if (!newest || S_ISDIR(newest->mode) || (!S_ISREG(newest->mode) && entry->count < 2))
        return;
    if (find->match.status && !(find->match.status & find_status_of(newest)))
        return;
    wb_progress_add(1, 0);
    r = read_states(find, entry, newest);
    if (r < 0 && r != -EINTR) {
        content.unknown++;
        content.error = r;
    }
    if (find->all) {
        each_period(find, out, path, newest, &content);
    } else if (search_ends(find, &content)) {
        content.now = has_now(&content, newest);
        find_show_content(find, out, path, newest, &content);
    }
    if (content.unknown > 0 && !wb_cli_interrupted())
        find_show_unknown(find, out, path, &content);
}
