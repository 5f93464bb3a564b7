/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_name.h"

#include "daemon/past/past.h"
#include <string.h>

int wb_past_moment_of(const struct wb_session *session, bool whole, const char *name, unsigned nth,
                      struct wb_past_moment *ret)
{
    ret->base = 0;
    if (whole && session->history && !session->options->plain)
        return wb_history_time(session->history, name, wb_store_now(session->store), nth, &ret->time, &ret->scope);
    if (!wb_past_may_be_moment(session, name))
        return WB_NOT_TIME;
    return wb_history_parse_entry(session->history, name, wb_store_now(session->store), nth, &ret->base, &ret->time,
                                  &ret->scope);
}

bool wb_past_is_moment(const struct wb_session *session, const char *name)
{
    struct wb_past_moment moment;

    return wb_past_moment_of(session, false, name, 0, &moment) == 0;
}

size_t wb_past_base(const struct wb_session *session, const char *name)
{
    struct wb_past_moment moment;

    return wb_past_moment_of(session, false, name, 0, &moment) == 0 ? moment.base : strlen(name);
}
