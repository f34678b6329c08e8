import type { en } from './en';

type Like<T> = { [K in keyof T]: T[K] extends string ? string : Like<T[K]> };

export const zh: Like<typeof en> = {
  app: { name: 'gpumeter', skip: '跳到主要内容', navigation: '主导航', menu: '打开导航', language: '语言', theme: '配色', auto: '跟随系统', light: '浅色', dark: '深色', version: '版本 {{version}}', noPage: '没有这个页面', noPageHint: '地址可能有误，或来自其他版本。', home: '前往总览' },
  nav: { overview: '总览', instances: '实例', projects: '项目', plans: '计费方案', quality: '数据质量', prices: '价格', statements: '账单' },
  session: {
    title: '登录', token: '访问令牌', tokenHint: '由服务器管理员用 gpumeter token new 创建。令牌保存在脚本无法读取的 Cookie 中。', submit: '登录', oidc: '使用组织账号登录', or: '或', signOut: '退出登录', as: '已登录：{{name}}', role: '角色：{{role}}', projects: '项目：{{projects}}', allProjects: '全部',
  },
  view: {
    label: '显示范围', range: '时间范围', today: '今天', yesterday: '昨天', '7d': '最近 7 天', '30d': '最近 30 天', month: '本月', 'last-month': '上月', custom: '自定义', from: '起', to: '止', toHint: '不含该时刻。留空表示到现在。', fromHint: '日期，或如 2026-03-01T10:00:00Z 的时刻', apply: '应用',
    zone: '时区', zoneHint: '日和月按此时区划分', asOf: '截至所知', asOfNow: '现在', asOfHint: '只统计到该时刻为止已入库的数据。留空表示全部。', asOfBanner: '显示的是截至 {{at}} 所知的数字。', asOfClear: '显示当前所知',
    filters: '筛选', addFilter: '添加筛选', filterKey: '筛选项', filterValue: '值', filterEmpty: '留空表示没有该项的用量', labelHint: '键=值', remove: '移除筛选 {{filter}}', clear: '移除全部筛选', without: '无{{key}}', cancel: '取消', more: '时区与截至时刻',
  },
  key: { project: '项目', platform: '平台', model: '型号', region: '地域', plan: '计费方式', instance: '实例', label: '标签' },
  live: { live: '实时', connecting: '连接中', reconnecting: '重新连接中', polling: '每分钟更新', fixed: '固定时刻', stale: '数据已过时', age: '{{age}}前更新', now: '刚刚更新', hint: '数字会自动刷新' },
  state: {
    loading: '加载中', failed: '加载失败', failedRefresh: '刷新失败；当前显示的是 {{age}}前的数据。', unreachable: '无法连接服务器。gpumeter 是否在运行？', retry: '重试', status: 'HTTP {{status}}', forbidden: '无权查看', tooLong: '耗时过长，请缩小查询范围。', notFound: '没有找到',
    emptySpan: '该时段没有用量', emptySpanHint: '该时段和筛选条件下没有任何上报。这不等于零：请换一个时段，或检查数据源是否在发送。',
  },
  unknown: { text: '未知', amount: '未知，并非零：至少有一部分时间没有价格，或没有上报。', utilization: '未知，并非零：该时段没有有效读数。', value: '未知，并非零：没有上报。', unpriced: '{{time}} 没有价格', unpricedHint: '没有任何价格覆盖的 GPU 时间，不计入任何金额。' },
  why: {
    button: '为什么？查看{{what}}的来源', title: '数字的来源', total: '该时段合计', allocated: '已分配', active: '使用中', idle: '空闲', unknown: '未知', cost: '费用', idleWaste: '空闲浪费', effective: '有效成本', list: '目录价成本', priceVersion: '价格版本', noPrices: '没有生效的价格', asOf: '截至所知', pieces: '计算', piecesHint: '同一价格的时段内每种 GPU 一行', charges: '计费行', chargesHint: '按租约和合同计费。打开可查看算式。', moreCharges: '另有 {{count, number}} 行', events: '事件', eventsHint: '上报的内容，按入库顺序', notCounted: '未计入', more: '加载更多事件', repeat: '用命令行重复此查询', copy: '复制', copied: '已复制', unpriced: '没有价格', charge: '计费行 {{line}}', booked: '账本分录', notBooked: '尚未入账：仍可能变化。', reversal: '冲销', booking: '入账', empty: '该时段没有事件', back: '返回', open: '打开计费行 {{line}}', amount: '金额', arithmetic: '算式', source: '来源', unit: '单元', span: '时段', time: 'GPU 时间', api: 'JSON 格式', leases: '租约', close: '关闭', quantity: '数量', billable: '计费时间', metered: '计量时间', listPrice: '目录价', price: '价格', category: '类别', status: '状态', state: '运行状态', adjustments: '调整', rule: '规则', reason: '原因', evidence: '凭证',
  },
  chart: { asTable: '以表格显示', asChart: '以图表显示', asTableOf: '以表格显示{{title}}', bars: '{{title}}：每个时段一个堆叠柱。按回车查看来源。' },
  class: { useful: '有效使用', waste: '空闲浪费', unknown: '未知', free: '空余容量', stopped: '已停止', minimum: '起订与取整', commitment: '未用承诺', rework: '丢失的工作', meter: '流量与存储', credit: '抵扣' },
  classHint: { useful: '在工作的 GPU', waste: '被占用但没有工作的 GPU', unknown: '被占用，但不知道是否在使用', free: '没有人占用的 GPU', stopped: '实例未占用 GPU 时的计费', minimum: '超出实例时间的计费', commitment: '已购买但未使用', rework: '平台回收实例时丢失的工作', meter: 'GPU 时间以外的计量', credit: '退还' },
  figure: { billed: '已计费', cost: '费用', utilization: '利用率', idleWaste: '空闲浪费', allocated: '已分配' },
  overview: {
    title: '总览', burn: '当前每小时花费', burnUnit: '/ 小时', gpus: '已分配 {{allocated}} 张 GPU', active: '使用中', idle: '空闲', unknown: '未知', free: '空余', wasteNow: '当前空闲浪费', wasteShare: '占当前花费的 {{share}}', today: '今天', month: '本月至今', budget: '已用预算 {{amount}} 的 {{share}}', budgetLeft: '剩余 {{left}}', noBudget: '未设置预算', budgetOver: '超出预算',
    vsSame: '与上月同期相比 {{change}}（{{amount}}）', vsWhole: '上月全月：{{amount}}', forecast: '本月预测', forecastRange: '{{low}} 至 {{high}}', forecastFrom_one: '依据 {{count, number}} 天', forecastFrom_other: '依据 {{count, number}} 天', noForecast: '天数不足，无法预测', wasteOfCost: '占有效成本的 {{share}}', coverage: '覆盖率', coverageHint: '已分配的 GPU 时间中有有效读数的部分', per_hour: '每小时支出', per_day: '每日支出', per_month: '每月支出', forecastNow: '按当前速度', hours: '最近 24 小时每小时支出', stackHint: '按去向划分的有效成本', byProject: '按项目', byModel: '按型号', byPlatform: '按平台', byPlan: '按计费方式', key: '名称', without: '（无）', onDemand: '按需，或没有租约', share: '占比', toInstances: '{{key}} 的实例', more: '另有 {{count, number}} 项', less: '收起',
    quality: '数据质量', incidents_one: '{{count, number}} 个未关闭的异常', incidents_other: '{{count, number}} 个未关闭的异常', late_one: '{{count, number}} 个迟到事件', late_other: '{{count, number}} 个迟到事件', conflicts_one: '{{count, number}} 个冲突', conflicts_other: '{{count, number}} 个冲突', quarantined_one: '{{count, number}} 个被隔离', quarantined_other: '{{count, number}} 个被隔离', gaps_one: '缺少 {{count, number}} 个事件', gaps_other: '缺少 {{count, number}} 个事件', held_one: '{{count, number}} 个事件待生效', held_other: '{{count, number}} 个事件待生效', allGood: '没有未关闭的异常，没有迟到或缺失',
  },
  instances: {
    title: '实例', effective_cost: '有效成本', gpus: 'GPU 数', region: '地域', owner: '所有者', unassigned: '不属于任何实例', search: '按名称搜索', state: '状态', anyState: '全部状态', perPage: '行数', count_one: '{{count, number}} 个实例', count_other: '{{count, number}} 个实例', next: '下一页', first: '首页', prev: '上一页', totals: '全部合计', sortBy: '按{{column}}排序', order: '顺序', noLease: '无租约', gpus_one: '{{count, number}} 张 GPU', gpus_other: '{{count, number}} 张 GPU', idleFor: '已空闲 {{age}}', since: '开始于', last24: '最近 24 小时', spark: '最近 24 小时逐小时利用率；已知小时的平均值：{{mean}}', instance: '实例', project: '项目', model: '硬件', price: '价格 / GPU 小时', cost: '已计费', idle_waste: '空闲浪费', utilization: '利用率', allocated: 'GPU 时间', idle: '空闲起始', sort: '排序', none: '没有匹配的实例', noneHint: '该时段内没有符合筛选条件的上报。', platform: '平台', plan: '计费方式',
  },
  projects: {
    title: '项目', count_one: '{{count}} 个项目', count_other: '{{count}} 个项目', share: '无项目的费用如何分摊', proportional: '按比例', even: '平均', none: '不分摊', proportionalHint: '各项目自身用量的有效成本，加上按用量比例分摊的无项目费用', evenHint: '各项目自身用量的有效成本，加上平均分摊的无项目费用', noneHint: '各项目自身用量的有效成本；无项目的费用不由任何项目承担', total: '合计', totalHint: '有效成本：购买费用分摊到所支付的时间', unallocated: '无项目', isShared: '已分摊到下列项目', notShared: '不由任何项目承担', table: '各项目应付', pays: '应付', ofTotal: '占比', direct: '自身用量', shared: '分摊', sum: '总和', csv: 'CSV', ofCost: '占费用的 {{share}}', nothingShared: '没有分摊：没有可分摊的项目，或金额未知',
  },
  plans: {
    title: '计费方案', count_one: '{{count}} 个方案', count_other: '{{count}} 个方案', leftOut: '方案不能按{{filters}}筛选：该筛选在此不起作用。', bought: '已购方案及其价值', boughtHint: '该时段内有效的承诺、带方案的实例和报价', none: '该时段没有方案', noneHint: '没有承诺、没有包周期租用，也没有报价。',
    cost: '方案成本', costHint: '购买费用按时间分摊', unusedCost: '其中未使用', ofCost: '占成本的 {{share}}', onDemand: '按需', onDemandHint: '已用时间按目录价的费用', noOnDemand: '未知，并非零：没有可比较的按需价格。', savings: '节省', savingsHint: '按需费用减成本；负数表示方案更贵', plan: '方案', verdict: '是否值得', use: '使用率', useOf: '已用 {{share}}', unusedTime: '{{time}} 未使用', unused: '未使用', breakEven: '盈亏平衡', breakEvenOf: '{{hours}} / {{cycle}} 小时', breakEvenJob: '{{hours}} GPU 小时', noBreakEven: '没有可比较的价格', never: '一个周期不够长', reached: '已达到', missing: '还差 {{hours}} 小时，剩余 {{left}} 小时',
    kind: { commitment: '承诺', instance: '实例', quote: '报价' }, term: { day: '包日', week: '包周', month: '包月', quarter: '包季', year: '包年', on_demand: '按需', spot: '抢占式' },
    verdicts: { keep: '值得', too_dear_at_this_use: '使用率过低', never_breaks_even: '永不划算', unused: '未使用', unpriced: '未知' }, verdictHint: { keep: '比同样用量的按需费用便宜', too_dear_at_this_use: '同样的用量按需会更便宜', never_breaks_even: '整个周期按需都比方案便宜', unused: '已付费但未使用', unpriced: '没有可比较的按需价格' },
    advice: '建议预留', adviceHint: '若需求与该时段相同，最便宜的组合。选择一项查看其成本。', peak: '同时最多 {{count}} 张', committed: '已承诺 {{count}} 张', reserve_one: '预留 {{count}} 张 · {{term}}', reserve_other: '预留 {{count}} 张 · {{term}}', saves: '节省', code: { reserve: '预留', on_demand: '按需', spot: '抢占式', no_plan: '没有方案', unpriced: '没有价格' }, codeHint: { reserve: '预留最便宜', on_demand: '使用率都不足以预留', spot: '抢占式比任何预留都便宜', no_plan: '价目表中没有相应方案', unpriced: '价目表中没有相应价格' },
    curve: '成本曲线：{{pool}}', curveHint: '该时段成本随预留 GPU 数的变化', termLabel: '周期', best: '最便宜：预留 {{count}} 张，{{cost}}', line: { cost: '合计', reserved: '预留部分', rest: '其余部分' }, atReserved: '预留 {{count}} 张时', threshold: '使用率达到多少才值得', neverWorth: '此价格永不值得', perHour: '每 GPU 小时', mode: { on_demand: '按需', spot: '抢占式' },
    modes: '各工作负载适合的方式', modesHint: '整个工作负载只用一种计费方式时各自的费用，最便宜的加粗', workload: '工作负载', noWorkload: '未命名', fits: '最适合', duty: '占用率', noSuchOffer: '不提供', whatIf: '同样的用量换一种付费方式', whatIfHint_one: '已略去 {{count}} 个没有自己价格的平台', whatIfHint_other: '已略去 {{count}} 个没有自己价格的平台', if: { as_is: '实际情况', on_demand: '全部按需', plan: '全部{{term}}', platform: '全部在 {{platform}}' }, ownPrices: '{{share}} 按自己的价格',
  },
  states: { provisioning: '创建中', running: '运行中', running_no_gpu: '无 GPU 运行', stopping: '停止中', stopped_keep: '已停止（保留 GPU）', stopped_free: '已停止（释放 GPU）', interrupted: '已中断', released: '已释放', expired: '已到期', frozen: '已冻结' },
  instance: {
    facts: '实例信息', owner: '所有者', lastActive: '最近活动', lastReading: '最近读数', labels: '标签', units: 'GPU 与节点', timeline: '时间线', timelineHint: '所有图表共用一个时间轴，步长为一{{step}}。空白表示未知，并非零。', minute: '分钟', hour: '小时', day: '天', utilization: '利用率', memory: '显存', power: '功率', cost: '每步费用', states: '运行状态', noStates: '没有租约事件：分配时间仅来自用量。', charges: '计费行', chargesHint: '该时段账单的组成', noCharges: '该时段没有计费行：费用等于分配时间乘以价格。', from: '起', to: '止', kind: '类别', quantity: '数量', price: '价格', amount: '金额', gpus: 'GPU 数', plan: '计费方式', none: '无', events: '事件', eventsShow: '查看该实例背后的事件', now: '现在', lane: '状态变化：{{states}}', chart: '{{name}}随时间变化：从 {{low}} 到 {{high}}，{{gaps}} 步未知', noPoints: '该时段没有读数', tableOf: '以表格显示时间线', more: '加载更多', active: '使用中', idle: '空闲', unknown: '未知', span: '时段',
  },
};
