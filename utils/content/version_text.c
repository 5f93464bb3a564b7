/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/version_text.h"
#include "common/text.h"
#include "content/states.h"
#include "wayback/when.h"
#include <glib.h>
#include <string.h>

/*
 * The other name of a rename or link: the former or the new one. The list of a directory shows a rename inside it at
 * the name that was lost; the list of a file that had the other name before shows it at the name that it had.
 */
static void append_other(GString *text, const struct wb_version_style *style, const struct wb_control_version *version)
{
    bool lost = !version->exists_after;

    if (strcmp(version->op_name, "exchange") == 0) {
        g_string_append_printf(text, " with %s", version->other);
        return;
    }
    if (strcmp(version->op_name, "rename") == 0 && version->existed_before &&
        strcmp(version->name, style->directory ? version->other : style->name) != 0)
        lost = true;
    if (lost && !style->directory && strcmp(version->other, style->name) == 0)
        g_string_append_printf(text, " from %s", version->name);
    else
        g_string_append_printf(text, " %s %s", lost ? "to" : "from", version->other);
}

/* "gap since 2026-11-22 14:03:07": the changes of that time are unknown. */
static char *gap(const struct wb_version_style *style, const struct wb_control_version *version)
{
    char since[WB_WHEN_TEXT_MAX] = "the beginning";

    if (version->offset > 0)
        wb_text_time((int64_t)version->offset, style->verbose, since);
    return *version->detail ? g_strdup_printf("gap since %s (%s)", since, version->detail)
                            : g_strdup_printf("gap since %s", since);
}

/* "write (thinned out since 2026-11-22 14:03:07)": the states since then were deleted; the one before is shown. */
static void append_thinned(GString *text, const struct wb_version_style *style,
                           const struct wb_control_version *version)
{
    char since[WB_WHEN_TEXT_MAX];

    wb_text_time(version->thinned_since, style->verbose, since);
    g_string_append_printf(text, " (thinned out since %s)", since);
}

struct wb_control_version wb_version_describe(const struct wb_save *save, const char *name)
{
    struct wb_control_version version = save->newest;

    version.change = save->number;
    if (save->operations == 1 || save->newest.flags & WB_CONTROL_VERSION_WITHHELD)
        return version;
    if (save->oldest.flags & WB_CONTROL_VERSION_THINNED) {
        version.flags |= WB_CONTROL_VERSION_THINNED;
        version.thinned_since = save->oldest.thinned_since;
    }
    version.existed_before = save->oldest.existed_before;
    version.size_before = save->oldest.size_before;
    version.mode_before = save->oldest.mode_before;
    version.offset = save->from;
    version.length = save->to - save->from;
    if (version.exists_after && name) {
        g_strlcpy(version.name, wb_version_name_after(&save->newest, name), sizeof(version.name));
        *version.detail = *version.other = '\0';
    }
    g_strlcpy(version.op_name, wb_save_operation(save), sizeof(version.op_name));
    return version;
}

char *wb_version_operation(const struct wb_version_style *style, const struct wb_control_version *version)
{
    GString *text;

    if (version->flags & WB_CONTROL_VERSION_GAP)
        return gap(style, version);
    text = g_string_new(version->op_name);
    if (*version->detail)
        g_string_append_printf(text, " %s", version->detail);
    if (*version->other)
        append_other(text, style, version);
    if (!style->directory && *version->name && strcmp(version->name, style->name) != 0 &&
        strcmp(version->other, style->name) != 0)
        g_string_append_printf(text, " (as %s)", version->name);
    if (version->flags & WB_CONTROL_VERSION_THINNED)
        append_thinned(text, style, version);
    return g_string_free(text, FALSE);
}

char *wb_version_bytes(const struct wb_version_style *style, const struct wb_control_version *version)
{
    char length[WB_TEXT_SIZE_MAX], offset[WB_TEXT_SIZE_MAX];

    if (version->length == 0)
        return g_strdup("-");
    if (style->verbose)
        return g_strdup_printf("%" G_GUINT64_FORMAT " at %" G_GUINT64_FORMAT, version->length,
                               version->offset);
    if (version->offset < 1024) /* a place, not an amount: without "B" */
        return g_strdup_printf("%s at %u", wb_text_size(version->length, length), (unsigned)version->offset);
    return g_strdup_printf("%s at %s", wb_text_size(version->length, length),
                           wb_text_size(version->offset, offset));
}

char *wb_version_size(const struct wb_version_style *style, const struct wb_control_version *version)
{
    char text[WB_TEXT_SIZE_MAX];

    if (!version->exists_after)
        return g_strdup("gone");
    /* A catalog does not always record the size of an entry. */
    if (style->directory && version->size_after == 0)
        return g_strdup("-");
    if (style->verbose && version->existed_before && version->size_before != version->size_after)
        return g_strdup_printf("%" G_GUINT64_FORMAT " -> %" G_GUINT64_FORMAT, version->size_before,
                               version->size_after);
    if (style->verbose)
        return g_strdup_printf("%" G_GUINT64_FORMAT, version->size_after);
    return g_strdup(wb_text_size(version->size_after, text));
}

char *wb_version_who(const struct wb_version_style *style, const struct wb_control_version *version)
{
    g_autofree char *shown = wb_text_printable(version->command);

    if (version->pid == 0 && !*version->command)
        return g_strdup(version->uid ? wb_text_user(version->uid) : "-");
    if (style->verbose)
        return g_strdup_printf("%s:%s %u %s", wb_text_user(version->uid), wb_text_group(version->gid),
                               version->pid, shown);
    return g_strdup_printf("%s %u %s", wb_text_user(version->uid), version->pid, shown);
}
