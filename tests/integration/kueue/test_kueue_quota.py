"""A queue of 50 GB: what Kueue charges is what slices hold, whoever asks for them."""


async def a_queue_of_fifty(stage):
    await stage.some_nodes(2)
    await stage.queue(50)


async def test_ten_jobs_run_and_the_eleventh_waits_until_one_ends(stage):
    await a_queue_of_fifty(stage)
    for number in range(10):
        await stage.job(f"job-{number}")
        await stage.job_runs(f"job-{number}")
        await stage.charged(5 * (number + 1))
    await stage.job("last")
    await stage.job_waits("last")
    await stage.charged(50, pending=1)
    await stage.delete_job("job-3")
    await stage.job_runs("last")
    await stage.charged(50)
