//! What was used, summed up.

pub(super) const TOTALS: &str = "
    SELECT
        -- Rounded down, also before 1970.
        (started_at - ((started_at % $2::bigint) + $2::bigint) % $2::bigint) AS at,
        model,
        api_key,
        level,
        count(*),
        count(*) FILTER (WHERE status >= 400),
        sum(prompt_tokens >> 32)::bigint,
        sum(prompt_tokens & 4294967295)::bigint,
        sum(cached_tokens >> 32)::bigint,
        sum(cached_tokens & 4294967295)::bigint,
        sum(completion_tokens >> 32)::bigint,
        sum(completion_tokens & 4294967295)::bigint,
        sum(cost >> 32)::bigint,
        sum(cost & 4294967295)::bigint,
        max(started_at)
    FROM llmgw.usage
    WHERE started_at >= $1
    GROUP BY 1, model, api_key, level
    ORDER BY 1, model, api_key, level";
