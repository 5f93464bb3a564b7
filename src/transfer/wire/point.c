/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How far a copy has come, as one word. */
#include "wayback/copy.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

static int parse_when(const char *text, int64_t *ret)
{
    struct wb_time time;

    *ret = 0;
    if (strcmp(text, "0") == 0)
        return 0;
    if (wb_time_parse_words(text, wb_when_now(), &time) != 0 || time.kind != WB_TIME_INSTANT || time.instant <= 0)
        return -EINVAL;
    *ret = time.instant;
    return 0;
}

char *wb_copy_point_print(const struct wb_copy_point *point, char text[WB_COPY_POINT_MAX])
{
    char since[WB_WHEN_TEXT_MAX] = "0", until[WB_WHEN_TEXT_MAX];

    if (point->since > 0)
        wb_when_print_epoch(point->since, since);
    if (point->frames == 0)
        g_strlcpy(text, since, WB_COPY_POINT_MAX);
    else
        g_snprintf(text, WB_COPY_POINT_MAX, "%s+%s+%" G_GUINT64_FORMAT "+%016" G_GINT64_MODIFIER "x", since,
                   wb_when_print_epoch(point->until, until), point->frames, point->check);
    return text;
}

int wb_copy_point_parse(const char *text, struct wb_copy_point *ret)
{
    g_auto(GStrv) parts = g_strsplit(text, "+", 5);
    guint count = g_strv_length(parts);
    int r;

    *ret = (struct wb_copy_point){0};
    if (count != 1 && count != 4)
        return -EINVAL;
    r = parse_when(parts[0], &ret->since);
    if (r < 0 || count == 1)
        return r;
    if (parse_when(parts[1], &ret->until) < 0 || ret->until <= ret->since ||
        !g_ascii_string_to_unsigned(parts[2], 10, 1, UINT64_MAX - 1, &ret->frames, NULL) ||
        !g_ascii_string_to_unsigned(parts[3], 16, 0, UINT64_MAX, &ret->check, NULL))
        return -EINVAL;
    return 0;
}
