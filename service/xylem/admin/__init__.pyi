"""The names that other packages may import from this one, and the module of each."""

from .jobs.data import UploadedFile as UploadedFile
from .jobs.errors import JobConflict as JobConflict
from .jobs.figures import JobFigures as JobFigures
from .jobs.job import Job as Job
from .jobs.job import JobProgress as JobProgress
from .jobs.job import PromotionVerdict as PromotionVerdict
from .jobs.job_workers import JobWorkers as JobWorkers
from .jobs.jobs import Jobs as Jobs
from .jobs.kinds import REQUEST_MODELS as REQUEST_MODELS
from .jobs.kinds import parameter_schemas as parameter_schemas
from .jobs.model_learning import ModelLearning as ModelLearning
from .jobs.schedules import Schedules as Schedules
from .jobs.worker import run_workers as run_workers
from .registry.denials import Denial as Denial
from .registry.denials import allow_again as allow_again
from .registry.denials import denial_of as denial_of
from .registry.denials import denying_known as denying_known
from .registry.facts import history_facts as history_facts
from .registry.facts import provenance as provenance
from .registry.follower import RemoteFollower as RemoteFollower
from .registry.registry import Registry as Registry
from .registry.registry import Removal as Removal
from .registry.remote import RemoteStore as RemoteStore
