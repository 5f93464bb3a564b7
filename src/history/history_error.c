/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reason, for a message, why a state cannot be rebuilt: one line for each thread. */
#include "history/internal.h"

#include <string.h>

static _Thread_local char problem[256];

const char *wb_history_error(void)
{
    return problem;
}

void wb_history_clear_error(void)
{
    problem[0] = '\0';
}

int wb_history_fail(int error, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    g_vsnprintf(problem, sizeof(problem), format, list);
    va_end(list);
    return error;
}

/* What a gap of that reason says happened after the state that was asked for. */
static const char *gap_words(unsigned reason)
{
    switch (reason) {
    case WB_GAP_REFUSED:
        return "changes that could not be recorded (onfull=continue) came after it";
    case WB_GAP_ERASED:
        return "its history was erased (vrm)";
    case WB_GAP_POWER:
        return "a power cut took the records of changes that came after it";
    case WB_GAP_UNSEEN:
        return "it was changed while Wayback did not record";
    case WB_GAP_DAMAGE:
        return "records of changes that came after it were lost to damage";
    case WB_GAP_POLICY:
        return "wayback.conf leaves changes that came after it unrecorded";
    default:
        return "changes that came after it are not known";
    }
}

int wb_history_fail_damaged(struct wb_object object, enum wb_object_file file)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, file, path);
    return wb_history_fail(-EIO, "%s: records were lost (the file is missing or too short, or the list in `"
                           WB_MANIFEST_NAME "` that it is compared with is damaged); run vfsck", path);
}

int wb_history_fail_gap(unsigned reason)
{
    return wb_history_fail(-EIO, "%s", gap_words(reason));
}
